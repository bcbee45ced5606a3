package listen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/internal/disk"
)

// standing remembers in a file which activations nobody has ended. When the
// process dies, or ends, its actors go on with what they have counted and not yet
// sent: an activation of the same identity on the same channel after the start is
// that activation still, and not a new one from which all counts anew. It opens
// nothing by itself: whether the actor is still there only the platform knows.
// It is safe for concurrent use.
type standing struct {
	mu   sync.Mutex
	path string // empty: nothing is remembered
	live map[string]record
}

// record is an activation as it stands in the file.
type record struct {
	Identity ingest.Identity `json:"identity"`
	At       time.Time       `json:"at"`
	Since    time.Time       `json:"since"`
	// Stated says that the platform gave since, and so vouches for the time between.
	Stated bool `json:"stated,omitempty"`
}

// standingVersion is that of the file; another one is refused.
const standingVersion = 1

type standingFile struct {
	Version int               `json:"version"`
	Live    map[string]record `json:"live"`
}

// readStanding reads the file; one that is not there is empty. After an error
// nothing is remembered from before, and the file is written anew.
func readStanding(path string) (*standing, error) {
	s := &standing{path: path, live: map[string]record{}}
	if path == "" {
		return s, nil
	}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, err
	}
	var f standingFile
	if err := json.Unmarshal(b, &f); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if f.Version != standingVersion {
		return s, fmt.Errorf("%s: has version %d, this program reads %d", path, f.Version, standingVersion)
	}
	if f.Live != nil {
		s.live = f.Live
	}
	return s, nil
}

// of returns what stands for that identity on that channel.
func (s *standing) of(name string, id ingest.Identity) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.live[name]
	return r, ok && r.Identity == id
}

func (s *standing) put(name string, r record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[name] = r
	return s.save()
}

func (s *standing) remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.live[name]; !there {
		return nil
	}
	delete(s.live, name)
	return s.save()
}

// save writes the file, or removes it where it cannot be written: an activation
// that has ended must not stand in it, since what its actor counts elsewhere from
// now on would be counted here again.
func (s *standing) save() error {
	err := s.write()
	if err == nil {
		return nil
	}
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		return errors.Join(err, gone)
	}
	return err
}

func (s *standing) write() error {
	if s.path == "" {
		return nil
	}
	b, err := json.Marshal(standingFile{standingVersion, s.live})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	return disk.File{Path: s.path}.Replace(b)
}
