package store

import (
	"fmt"
	"strings"
	"time"
)

// Durability says when Sync returns: "fsync", once the samples are on the disk;
// "interval:1s" (any duration), at once, with an fsync every second behind it;
// "os", at once, and the kernel writes when it likes. All three outlive the
// death of the process; a power cut costs nothing, at most the interval, or up
// to half a minute.
type Durability string

// The two modes without a duration.
const (
	DurabilityFsync Durability = "fsync"
	DurabilityOS    Durability = "os"

	intervalPrefix = "interval:"
)

// ParseDurability reads a mode as it stands in the configuration.
func ParseDurability(s string) (Durability, error) {
	d := Durability(s)
	if d == DurabilityFsync || d == DurabilityOS || d.interval() > 0 {
		return d, nil
	}
	return "", fmt.Errorf("storage.durability: %q: want fsync, interval: and a duration (interval:1s), or os", s)
}

// interval is the duration of an interval mode, 0 for the others and for words
// that are none.
func (d Durability) interval() time.Duration {
	words, ok := strings.CutPrefix(string(d), intervalPrefix)
	if !ok {
		return 0
	}
	every, err := time.ParseDuration(words)
	if err != nil || every < 0 {
		return 0
	}
	return every
}
