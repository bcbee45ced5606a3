package warden

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// Phases of a record.
const (
	phaseWriting   = "writing"   // Target is being written: the device may hold anything between
	phaseStanding  = "standing"  // Applied was read back
	phaseRestoring = "restoring" // the original is being written
)

const (
	recordVersion = 1
	maxID         = 128 // of a device, so that its record's name fits a folder entry
)

// record is the intent record of one device: what is about to be written to
// it, or stands on it, and for whom. It outlives the process, not the machine.
// The original in it is a second copy, for a journal that cannot be read.
type record struct {
	Version    int             `json:"version"`
	Sum        string          `json:"sha256"` // of the record with Sum empty
	Device     string          `json:"device"`
	BootID     string          `json:"boot_id"`
	Phase      string          `json:"phase"`
	Seq        uint64          `json:"seq"` // of the writes to this device by this process
	Target     float64         `json:"target"`
	Previous   float64         `json:"previous"` // what the device held before
	Applied    *actuate.State  `json:"applied,omitempty"`
	Original   actuate.State   `json:"original"`
	DeadlineMS int64           `json:"lease_deadline_ms"` // on the warden's clock; 0 without a live lease
	Kept       bool            `json:"kept,omitempty"`    // left standing on purpose by a clean stop (on_stop: hold)
	Owner      recordedControl `json:"owner"`
}

// recordedControl is the claim behind a record, as much of it as a successor
// needs to go on with it.
type recordedControl struct {
	Control string  `json:"control"`
	Key     string  `json:"key,omitempty"`
	Purpose string  `json:"purpose"`
	OnStop  string  `json:"on_stop,omitempty"`
	Strict  bool    `json:"strict,omitempty"`
	Value   float64 `json:"value"`
	SafeCap float64 `json:"safe_cap,omitempty"`
	TTLMS   int64   `json:"ttl_ms"`
}

// intents is the folder of the records, one file a device. They are written by
// write(2) and rename(2), without fsync: a kill loses nothing, and after a loss
// of power the hardware has forgotten our values too.
type intents struct{ dir string }

func (in intents) name(id string) string { return "intent-" + url.PathEscape(id) + ".json" }

func (in intents) write(r record) error {
	r.Version = recordVersion
	data, err := r.seal()
	if err != nil {
		return fmt.Errorf("warden: intent of %s: %w", r.Device, err)
	}
	if err := replaceFile(in.dir, in.name(r.Device), data); err != nil {
		return fmt.Errorf("warden: intent of %s: %w", r.Device, err)
	}
	return nil
}

// read returns the record of a device, or nil where there is none or it cannot
// be believed; what is wrong with it is the error.
func (in intents) read(id string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(in.dir, in.name(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("warden: intent of %s: %w", id, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("warden: intent of %s: %w", id, err)
	}
	if r.Version > recordVersion {
		return nil, fmt.Errorf("warden: intent of %s: version %d: %w", id, r.Version, ErrNewer)
	}
	sum := r.Sum
	if _, err := r.seal(); err != nil || r.Sum != sum || r.Device != id {
		return nil, fmt.Errorf("warden: intent of %s: checksum does not fit", id)
	}
	return &r, nil
}

func (in intents) remove(id string) error {
	err := os.Remove(filepath.Join(in.dir, in.name(id)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("warden: intent of %s: %w", id, err)
	}
	return nil
}

// ids are the devices that have a record, readable or not.
func (in intents) ids() ([]string, error) {
	files, err := os.ReadDir(in.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("warden: intents: %w", err)
	}
	var ids []string
	for _, f := range files {
		name, ours := strings.CutPrefix(f.Name(), "intent-")
		escaped, whole := strings.CutSuffix(name, ".json")
		if id, err := url.PathUnescape(escaped); ours && whole && err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// seal sets the checksum and returns the form on disk.
func (r *record) seal() ([]byte, error) {
	r.Sum = ""
	bare, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(bare)
	r.Sum = hex.EncodeToString(sum[:])
	return json.Marshal(r)
}

// tokenName is the file that a warden leaves behind when it is about to be
// replaced by a newer one: its successor adopts the caps instead of giving
// them back.
const (
	tokenName = "handover.json"
	tokenLife = 30 * time.Second
)

type token struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	AtMS    int64  `json:"at_ms"` // on the warden's clock
}

func (in intents) leaveToken(boot string, now time.Duration) error {
	data, err := json.Marshal(token{Version: recordVersion, BootID: boot, AtMS: now.Milliseconds()})
	if err != nil {
		return fmt.Errorf("warden: handover: %w", err)
	}
	if err := replaceFile(in.dir, tokenName, data); err != nil {
		return fmt.Errorf("warden: handover: %w", err)
	}
	return nil
}

// tokenFresh says whether a handover is under way: a token of this boot, less
// than 30 s old.
func (in intents) tokenFresh(boot string, now time.Duration) bool {
	data, err := os.ReadFile(filepath.Join(in.dir, tokenName))
	if err != nil {
		return false // none, or none that can be read: no handover
	}
	var t token
	if json.Unmarshal(data, &t) != nil || t.Version != recordVersion || t.BootID != boot {
		return false
	}
	age := now - time.Duration(t.AtMS)*time.Millisecond
	return age >= 0 && age < tokenLife
}

// dropToken ends a handover, so that no later start takes it for its own.
func (in intents) dropToken() error {
	err := os.Remove(filepath.Join(in.dir, tokenName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("warden: handover: %w", err)
	}
	return nil
}
