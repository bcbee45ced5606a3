package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattloop/wattloop/internal/disk"
)

// Boot says which run of the kernel this is and how old it is. Both spans come
// from the kernel's clocks: they do not move when somebody sets the time.
type Boot struct {
	ID        string        // /proc/sys/kernel/random/boot_id
	Up        time.Duration // since the boot, suspends included
	Suspended time.Duration // of that
}

// ledgerVersion is the format of the file; one of a newer wattloop is refused.
const ledgerVersion = 1

// ledgerFile is its name in the folder.
const ledgerFile = "ledger.json"

// ledger keeps the counters over a restart of the process, so that none goes
// back (S0-113). It is written whole, beside and renamed, and never synced: it
// serves a restart, and after a power cut the counters of the hardware have
// begun anew too.
type ledger struct {
	dir    string // empty keeps nothing
	loaded book
	same   bool // loaded is of this boot
	boot   time.Time
	counts map[string]savedCount
}

// book is the contents of the file.
type book struct {
	Boot     string                 `json:"boot_id"`
	Booted   int64                  `json:"booted"` // Unix nanoseconds, as they were reckoned first
	Energies map[string]savedEnergy `json:"energies"`
	Counts   map[string]savedCount  `json:"counts"`
}

// savedEnergy is one energy series at its newest reading.
type savedEnergy struct {
	Start     int64          `json:"start"` // Unix nanoseconds
	Total     uint64         `json:"total_microjoules"`
	Up        time.Duration  `json:"read_at_uptime"` // nanoseconds
	Suspended time.Duration  `json:"suspended"`
	Counters  []savedCounter `json:"counters"`
}

type savedCounter struct {
	Path  string `json:"path"`
	Range uint64 `json:"range"`
	Value uint64 `json:"value"`
	Apart bool   `json:"apart"`
}

// savedCount is one counter that the kernel or a driver keeps.
type savedCount struct {
	Start int64   `json:"start"` // Unix nanoseconds
	Last  float64 `json:"last"`
}

// errNewer is a ledger that a newer version of this program wrote.
var errNewer = errors.New("is of a newer wattloop; run that one, or move the file away and let the counters start anew")

// openLedger reads the file in dir. One that is damaged is put aside, and what
// was wrong is in the answer beside a ledger that knows nothing.
func openLedger(dir string, now time.Time, boot Boot) (*ledger, error) {
	l := &ledger{dir: dir, boot: now.Add(-boot.Up), counts: map[string]savedCount{}}
	if dir == "" {
		return l, nil
	}
	path := filepath.Join(dir, ledgerFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("host: %w", err)
	}
	l.loaded, err = parseLedger(data)
	switch {
	case errors.Is(err, errNewer):
		return nil, fmt.Errorf("host: %s: %w", path, err)
	case err != nil:
		aside := path + ".damaged"
		return l, errors.Join(fmt.Errorf("host: %s: %w; put aside as %s, the counters start anew", path, err, aside), os.Rename(path, aside))
	}
	if l.same = boot.ID != "" && l.loaded.Boot == boot.ID; l.same {
		l.boot = time.Unix(0, l.loaded.Booted)
		for key, c := range l.loaded.Counts {
			l.counts[key] = c
		}
	}
	return l, nil
}

// parseLedger reads the header, "wattloop ledger VERSION CRC", and what it
// vouches for.
func parseLedger(data []byte) (book, error) {
	var b book
	head, body, ok := strings.Cut(string(data), "\n")
	var version int
	var sum uint32
	if n, err := fmt.Sscanf(head, "wattloop ledger %d %x", &version, &sum); !ok || n != 2 || err != nil {
		return b, errors.New("no ledger: the first line is not its own")
	}
	if version > ledgerVersion {
		return b, errNewer
	}
	if got := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)); got != sum || version < 1 {
		return b, fmt.Errorf("damaged: the checksum is %08x, the file says %08x", got, sum)
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		return book{}, fmt.Errorf("damaged: %w", err)
	}
	return b, nil
}

// take hands a series what an earlier process left of it.
func (l *ledger) take(c *component) {
	if s, ok := l.loaded.Energies[c.key()]; ok {
		if !l.same {
			s.Up = -1
		}
		c.before = &s
		delete(l.loaded.Energies, c.key())
	}
}

// resume puts the series where an earlier process left it, or says why it
// cannot go on from there.
func (c *component) resume(boot Boot) (why string) {
	s := c.before
	switch {
	case s.Up < 0:
		return "the machine has booted since"
	case boot.Up < s.Up:
		return "the machine's uptime went back"
	case slept(s.Suspended, boot.Suspended):
		return whySlept
	case len(s.Counters) != len(c.counters):
		return "it has other counters now"
	}
	for i, k := range c.counters {
		was := s.Counters[i]
		if was.Path != k.meter.Path || was.Range != k.meter.Range {
			return "it is read from another counter now"
		}
		k.value, k.apart = was.Value, was.Apart
	}
	c.start, c.total, c.up = time.Unix(0, s.Start), s.Total, s.Up
	return ""
}

// since says when a counter of the kernel or a driver began: with the boot,
// unless it was seen to fall, or stood higher when an earlier process read it.
// It is kept, so that a start does not wander with the clock.
func (l *ledger) since(key string, v float64, now time.Time) time.Time {
	c, known := l.counts[key]
	switch {
	case !known:
		c.Start = l.boot.UnixNano()
	case v < c.Last:
		c.Start = now.UnixNano()
	}
	c.Last = v
	l.counts[key] = c
	return time.Unix(0, c.Start)
}

// save writes everything down. Series that have not been read since the start
// are kept as they were found.
func (l *ledger) save(boot Boot, energies []*component) error {
	if l.dir == "" || boot.ID == "" {
		return nil
	}
	b := book{Boot: boot.ID, Booted: l.boot.UnixNano(), Energies: map[string]savedEnergy{}, Counts: map[string]savedCount{}}
	if l.same {
		for key, s := range l.loaded.Energies {
			b.Energies[key] = s
		}
	}
	for _, c := range energies {
		switch {
		case c.before != nil && c.before.Up >= 0:
			b.Energies[c.key()] = *c.before
		case !c.start.IsZero():
			b.Energies[c.key()] = c.saved()
		}
	}
	for key, c := range l.counts {
		if !math.IsNaN(c.Last) && !math.IsInf(c.Last, 0) {
			b.Counts[key] = c
		}
	}
	body, err := json.Marshal(b)
	if err != nil {
		panic("BUG: host: " + err.Error()) // finite numbers and texts alone
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	data := fmt.Appendf(nil, "wattloop ledger %d %08x\n%s", ledgerVersion, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), body)
	if err := (disk.File{Path: filepath.Join(l.dir, ledgerFile), Hasty: true}).Replace(data); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

func (c *component) saved() savedEnergy {
	s := savedEnergy{Start: c.start.UnixNano(), Total: c.total, Up: c.up, Suspended: c.suspended}
	for _, k := range c.counters {
		s.Counters = append(s.Counters, savedCounter{Path: k.meter.Path, Range: k.meter.Range, Value: k.value, Apart: k.apart})
	}
	return s
}

// reckon takes the clock anew, after somebody has set it.
func (l *ledger) reckon(now time.Time, boot Boot) {
	l.boot = now.Add(-boot.Up)
	for key, c := range l.counts {
		c.Start = l.boot.UnixNano()
		l.counts[key] = c
	}
}

// tally adds to a counter that this program keeps itself. It goes on over a
// restart while the machine is up.
func (l *ledger) tally(key string, n float64, now time.Time) (total float64, start time.Time) {
	c, known := l.counts[key]
	if !known {
		c.Start = now.UnixNano()
	}
	c.Last += n
	l.counts[key] = c
	return c.Last, time.Unix(0, c.Start)
}
