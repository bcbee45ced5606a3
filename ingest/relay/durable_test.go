package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wattloop/wattloop/ingest"
)

// Many who forward at once, with an fsync each: all of it arrives, each one's in
// its order, and they share fsyncs without waiting for ever.
func TestForwardAtOnce(t *testing.T) {
	u := newUpstream().serve(t, "unix")
	r := openRelay(t, Options{Upstream: u.addr, Fsync: true, MaxBytes: 64 << 20})
	const who, each = 8, 100
	var all sync.WaitGroup
	for w := range who {
		all.Go(func() {
			for i := range each {
				f := ingest.Forwarded{Signal: ingest.SignalLogs, Plane: ingest.PlaneWorkload, Wire: fmt.Appendf(nil, "%d %03d %s", w, i, strings.Repeat("x", 2000))}
				if err := r.Forward(t.Context(), f); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	u.awaitCount(t, who*each)
	got := u.order()
	for w := range who {
		mine := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.HasPrefix(s, fmt.Sprintf("logs %d ", w)) })
		if len(mine) != each || !slices.IsSorted(mine) {
			t.Errorf("of sender %d %d requests arrive, in order: %v", w, len(mine), slices.IsSorted(mine))
		}
	}
}
