package warden

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wattloop/wattloop/internal/disk"
)

const latchName = "latch.json"

// latch holds every control back after a person has said `caps restore`, until
// that person says `caps resume`. It survives a restart.
type latch struct {
	dir string

	mu sync.Mutex
	on bool
}

type latchFile struct {
	Version int       `json:"version"`
	Since   time.Time `json:"since"`
}

// openLatch reads the latch. A file that cannot be read as one latches: it is
// there because somebody wanted the caps off.
func openLatch(dir string) (*latch, error) {
	l := &latch{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, latchName))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("warden: latch: %w", err)
	}
	var f latchFile
	if err := json.Unmarshal(data, &f); err == nil && f.Version > journalVersion {
		return nil, fmt.Errorf("warden: %s: version %d: %w", filepath.Join(dir, latchName), f.Version, ErrNewer)
	}
	l.on = true
	return l, nil
}

func (l *latch) closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on
}

// close latches, from this moment on; the error says that a restart will not
// know of it.
func (l *latch) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
	data, err := json.Marshal(latchFile{Version: journalVersion, Since: time.Now().UTC()})
	if err == nil {
		err = replaceDurably(l.dir, latchName, data, func(string) {})
	}
	if err != nil {
		return fmt.Errorf("warden: latch: %w", err)
	}
	return nil
}

// open ends the latch; after an error it still holds.
func (l *latch) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := disk.Remove(filepath.Join(l.dir, latchName)); err != nil {
		return fmt.Errorf("warden: latch: %w", err)
	}
	l.on = false
	return nil
}
