package pull

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// meter is a component of the oracle, whose counter is drawn point by point.
type meter struct {
	kind, id string
	start    int64 // seconds
	joules   float64
	at       int64
	known    bool // an earlier document had the counter
	gauge    bool
}

// The reader against the rules written down once more, for documents of up to
// five components with resets of both kinds, gaps, gauges and duplicates: its
// reading is the oracle's, or there is none in both. A reading is never negative.
func TestReaderAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 300
		var meters []*meter
		for i := range rapid.IntRange(1, 5).Draw(t, "components") {
			meters = append(meters, &meter{
				kind: rapid.SampledFrom([]string{"cpu", "gpu", "memory"}).Draw(t, "type"), id: fmt.Sprint(i),
				start: 1, gauge: rapid.Bool().Draw(t, "gauge"),
			})
		}
		role := rapid.SampledFrom([]Role{Agent, Controller}).Draw(t, "role")
		r := &Reader{Role: role, Window: window * time.Second}
		now := int64(1_000_000)
		for range rapid.IntRange(1, 12).Draw(t, "polls") {
			now += int64(rapid.SampledFrom([]int{1, 5, 60, 300, 301, 900}).Draw(t, "step"))
			var energy, watts []string
			want, some := 0.0, false
			for _, m := range meters {
				was := *m
				m.at = now
				watt := rapid.Float64Range(0, 500).Draw(t, "W")
				m.joules += watt * float64(now-was.at)
				switch rapid.IntRange(0, 7).Draw(t, "event") {
				case 0:
					m.joules = was.joules / 2
				case 1:
					m.start = now - 1
				}
				attrs := fmt.Sprintf(`"attributes":[{"key":"hw.id","value":{"stringValue":"%s"}},{"key":"hw.type","value":{"stringValue":"%s"}}]`, m.id, m.kind)
				energy = append(energy, fmt.Sprintf(`{%s,"startTimeUnixNano":"%d000000000","timeUnixNano":"%d000000000","asDouble":%.17g}`, attrs, m.start, now, m.joules))
				level := float64(rapid.IntRange(1, 400).Draw(t, "gauge W"))
				if m.gauge { // twice, the lower of the two last
					watts = append(watts, fmt.Sprintf(`{%s,"timeUnixNano":"%d000000000","asDouble":%g}`, attrs, now, level),
						fmt.Sprintf(`{%s,"timeUnixNano":"%d000000000","asDouble":%g}`, attrs, now, level/2))
				}
				rated := was.known && m.start == was.start && m.joules >= was.joules && now-was.at <= window
				m.known = true
				if m.kind == "memory" || m.kind == "gpu" && role == Agent {
					continue
				}
				some = true
				switch {
				case rated:
					want += (m.joules - was.joules) / float64(now-was.at)
				case m.gauge:
					want += level
				default:
					want = math.NaN()
				}
			}
			if !some {
				want = math.NaN()
			}
			body := `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[` +
				`{"name":"hw.energy","unit":"J","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[` + strings.Join(energy, ",") + `]}},` +
				`{"name":"hw.power","unit":"W","gauge":{"dataPoints":[` + strings.Join(watts, ",") + `]}}]}]}]}`
			got, all := readBody(r, []byte(body))
			if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Fatalf("%s: %g (%s %s); the oracle says %g", role, got, all.Quality, all.Why, want)
			}
			if got < 0 {
				t.Fatalf("%g W", got)
			}
		}
	})
}

// No document makes the reader panic, and none gives a value that is no power.
func FuzzReader(f *testing.F) {
	first := doc(cumulative("1760000000", "1760000060", "15000"), gauge("1760000060", "250"))
	f.Add(first, doc(cumulative("1760000000", "1760000120", "30000"), ""))
	f.Add([]byte(`{"packagePowerWatts": 1e400}`), []byte(`{"cpu": {"packagePowerWatts": 180}}`))
	f.Add([]byte(`{"resourceMetrics": null}`), first)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, r := range []*Reader{{Role: Agent}, {Role: Controller}, {Role: Controller, Host: true}} {
			for _, body := range [][]byte{a, b, a} {
				if got, all := readBody(r, body); all.Quality == Fresh && !finite(got) {
					t.Fatalf("%g W of %q", got, body)
				} else if all.Quality != Fresh && all.Why == "" {
					t.Fatalf("no reading and no reason: %+v", all)
				}
			}
		}
	})
}
