package engine

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// resume takes up a control's state from the series that an earlier process
// stored, so that `for` survives a restart and a control that was engaged goes
// on without a write. A state older than the lease is gone: the warden has
// given the cap back by then, or holds it for protection.
func (e *Engine) resume(ctx context.Context, c *rules.Control, st *controlState, ts int64) error {
	known, err := e.recall(ctx, c, st, ts)
	if err != nil {
		return fmt.Errorf("control %s: take up the state before the restart: %w", c.Name, err)
	}
	if st.phase == Idle {
		st.adopt(c, known, e.opts.Governor.Devices())
	}
	return nil
}

// recall reads the stored state, and says whether there is one that counts.
func (e *Engine) recall(ctx context.Context, c *rules.Control, st *controlState, ts int64) (bool, error) {
	var failed error
	get := func(format string, args ...any) (float64, bool) {
		if failed != nil {
			return 0, false
		}
		got, err := e.opts.Recall(ctx, fmt.Sprintf(format, args...), ts)
		if failed = err; err != nil || len(got) == 0 {
			return 0, false
		}
		return got[0].V, true
	}
	of := selectorOf(c, st.labels)
	seconds, ok := get("timestamp(%s{%s})", seriesEngaged, of)
	stored := millis(seconds)
	if !ok || ts-stored > c.TTL.Milliseconds() {
		return false, failed
	}
	engaged, _ := get("%s{%s}", seriesEngaged, of)
	value, asked := get("max(%s{%s})", intentSeries(c.Action), of)
	engage, engages := get("%s{%s,condition=\"engage\"}", seriesHeld, of)
	release, releases := get("%s{%s,condition=\"release\"}", seriesHeld, of)
	if failed != nil {
		return false, failed
	}
	if engaged == 1 && asked {
		// Its last write may have been as late as what was stored last.
		st.phase, st.kind, st.value, st.wroteAt = Engaged, actuate.Keep, value, stored
		st.resumed, st.news = ts, max(st.news, ts)
	}
	if engages {
		st.engage = stored - millis(engage)
	}
	if releases {
		st.release = stored - millis(release)
	}
	return true, nil
}

func millis(seconds float64) int64 { return int64(math.Round(seconds * 1000)) }

// adopt looks for what an earlier process has left on the devices of a control
// that is not known to be engaged. A release that was under way goes on, as
// does what an observing control could not have written. A cap for protection
// of which nothing is known stands, for nobody else would ever give it back;
// what efficiency left ends with its lease.
func (st *controlState) adopt(c *rules.Control, known bool, devices []actuate.DeviceStatus) {
	for _, d := range devices {
		switch {
		case d.Owner != c.Name || d.Key != st.key:
		case known || c.Mode != rules.Enforce:
			st.phase, st.kind = Releasing, actuate.Release
		case c.Purpose == actuate.PurposeProtect && st.phase == Idle:
			st.phase, st.kind, st.value = Engaged, actuate.Keep, d.Granted
		case c.Purpose == actuate.PurposeProtect:
			st.value = min(st.value, d.Granted)
		}
	}
}

// selectorOf are the matchers of a control's own series for one key; a label
// that the key does not have must not be there.
func selectorOf(c *rules.Control, key labels.Labels) string {
	var b strings.Builder
	fmt.Fprintf(&b, "control=%s", strconv.Quote(c.Name))
	for _, name := range c.Key {
		fmt.Fprintf(&b, ",%s=%s", strconv.Quote(keyLabel(name)), strconv.Quote(key.Get(name)))
	}
	return b.String()
}
