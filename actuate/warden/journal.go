package warden

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// ErrNewer is returned for a file of the warden that a newer wattloop wrote.
// It is left as it is.
var ErrNewer = errors.New("written for a newer wattloop")

// errCorrupt says that the journal cannot be believed.
var errCorrupt = errors.New("corrupt")

const (
	journalVersion = 1
	journalName    = "originals.json"
)

// journal keeps, for every device that may hold a value of ours, what it held
// before. An entry is durable before the first write to the device, and is
// closed when the original is back and read back.
type journal struct {
	dir   string
	fault func(string)
	now   func() time.Time

	writing sync.Mutex // held while the file is replaced

	mu      sync.Mutex
	body    journalBody
	changes uint64 // made to body
	durable uint64 // of those, on disk
}

type journalBody struct {
	Entries map[string]entry `json:"entries"` // by device ID
	// Suspect names the devices that stood below their default when the journal
	// was found corrupt; nothing is written to them until a person clears it.
	Suspect []string `json:"suspect,omitempty"`
}

// entry is the original of one device.
type entry struct {
	BootID  string        `json:"boot_id"`
	SavedMS int64         `json:"saved_ms"` // wall time, Unix milliseconds: how long an unplugged device is waited for
	State   actuate.State `json:"state"`
}

// journalFile is the form on disk. Sum is the SHA-256 of Body, compacted.
type journalFile struct {
	Version int             `json:"version"`
	Sum     string          `json:"sha256"`
	Body    json.RawMessage `json:"body"`
}

// openJournal reads dir/originals.json; one that is not there is empty. An
// errCorrupt comes with an empty journal that may be used once the file has
// been put into quarantine.
func openJournal(dir string, fault func(string)) (*journal, error) {
	j := &journal{dir: dir, fault: fault, now: time.Now, body: journalBody{Entries: map[string]entry{}}}
	data, err := os.ReadFile(filepath.Join(dir, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("warden: originals: %w", err)
	}
	body, err := decodeJournal(data)
	if errors.Is(err, ErrNewer) {
		return nil, fmt.Errorf("warden: %s: %w", filepath.Join(dir, journalName), err)
	}
	if err != nil {
		return j, fmt.Errorf("warden: %s: %w", filepath.Join(dir, journalName), err)
	}
	j.body = body
	return j, nil
}

func decodeJournal(data []byte) (journalBody, error) {
	var file journalFile
	if err := json.Unmarshal(data, &file); err != nil {
		return journalBody{}, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if file.Version > journalVersion {
		return journalBody{}, fmt.Errorf("version %d: %w", file.Version, ErrNewer)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, file.Body); err != nil {
		return journalBody{}, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if sum := sha256.Sum256(compact.Bytes()); file.Version != journalVersion || hex.EncodeToString(sum[:]) != file.Sum {
		return journalBody{}, fmt.Errorf("%w: version %d, checksum does not fit", errCorrupt, file.Version)
	}
	var body journalBody
	if err := json.Unmarshal(file.Body, &body); err != nil {
		return journalBody{}, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if body.Entries == nil {
		body.Entries = map[string]entry{}
	}
	return body, nil
}

// quarantine keeps a corrupt journal under another name, with the time in it,
// and returns when it was last written. The file itself stays until rebuild
// replaces it, so that a kill between the two loses nothing.
func (j *journal) quarantine() (written time.Time, err error) {
	path := filepath.Join(j.dir, journalName)
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("warden: quarantine: %w", err)
	}
	aside := filepath.Join(j.dir, "quarantine")
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return info.ModTime(), fmt.Errorf("warden: quarantine: %w", err)
	}
	name := "originals-" + j.now().UTC().Format("20060102T150405.000000000") + ".json"
	if err := os.Link(path, filepath.Join(aside, name)); err != nil {
		return info.ModTime(), fmt.Errorf("warden: quarantine: %w", err)
	}
	return info.ModTime(), nil
}

// get returns the open entry of a device.
func (j *journal) get(id string) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.body.Entries[id]
	return e, ok
}

// ids are the devices that have an open entry, sorted.
func (j *journal) ids() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.body.Entries))
}

func (j *journal) suspect(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.body.Suspect, id)
}

func (j *journal) anySuspect() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.body.Suspect) > 0
}

// save makes the original of a device durable and returns what counts as the
// original: an entry of this boot that is open already is never overwritten,
// since the device may hold a value of ours by now.
func (j *journal) save(id, boot string, st actuate.State) (actuate.State, error) {
	j.fault(FaultBeforeSave)
	j.mu.Lock()
	old, had := j.body.Entries[id]
	if had && old.BootID == boot {
		change := j.changes
		j.mu.Unlock()
		return old.State, j.flush(change) // it may still be on its way to the disk
	}
	j.body.Entries[id] = entry{BootID: boot, SavedMS: j.now().UnixMilli(), State: st}
	change := j.changed()
	j.mu.Unlock()
	if err := j.flush(change); err != nil {
		j.mu.Lock()
		delete(j.body.Entries, id)
		if had {
			j.body.Entries[id] = old
		}
		j.changed()
		j.mu.Unlock()
		return actuate.State{}, err
	}
	return st, nil
}

// close ends the entry of a device. After an error the entry is still open.
func (j *journal) close(id string) error {
	j.mu.Lock()
	old, had := j.body.Entries[id]
	if !had {
		j.mu.Unlock()
		return nil
	}
	delete(j.body.Entries, id)
	change := j.changed()
	j.mu.Unlock()
	if err := j.flush(change); err != nil {
		j.mu.Lock()
		j.body.Entries[id] = old
		j.changed()
		j.mu.Unlock()
		return err
	}
	return nil
}

// rebuild makes the journal that follows a corrupt one.
func (j *journal) rebuild(entries map[string]entry, suspect []string) error {
	j.mu.Lock()
	maps.Copy(j.body.Entries, entries)
	j.body.Suspect = suspect
	change := j.changed()
	j.mu.Unlock()
	return j.flush(change)
}

// clear forgets which devices are suspect.
func (j *journal) clear() error {
	j.mu.Lock()
	if len(j.body.Suspect) == 0 {
		j.mu.Unlock()
		return nil
	}
	j.body.Suspect = nil
	change := j.changed()
	j.mu.Unlock()
	return j.flush(change)
}

// changed counts a change of body; the caller holds mu.
func (j *journal) changed() uint64 {
	j.changes++
	return j.changes
}

// flush returns when the change with that number is on disk. Callers that come
// while the file is being replaced are served by the next replacement, all at
// once: eight devices that engage together do not wait for eight fsyncs.
func (j *journal) flush(change uint64) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	if j.durable >= change {
		j.mu.Unlock()
		return nil
	}
	body, err := json.Marshal(j.body)
	made := j.changes
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("warden: originals: %w", err)
	}
	sum := sha256.Sum256(body)
	data, err := json.Marshal(journalFile{Version: journalVersion, Sum: hex.EncodeToString(sum[:]), Body: body})
	if err != nil {
		return fmt.Errorf("warden: originals: %w", err)
	}
	if err := replaceDurably(j.dir, journalName, append(data, '\n'), j.fault); err != nil {
		return fmt.Errorf("warden: originals: %w", err)
	}
	j.mu.Lock()
	j.durable = made
	j.mu.Unlock()
	return nil
}
