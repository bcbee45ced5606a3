package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

const cases = "../../testdata/cases/"

var t0 = time.Unix(1760000000, 0)

// capture keeps what a source exports.
type capture struct {
	now      time.Time
	requests []pmetric.Metrics
}

func (c *capture) source(meters []Meter) *Source {
	return &Source{
		Meters: meters, Node: "worker-01", Host: "worker-01.local", Clock: func() time.Time { return c.now },
		Export: func(_ context.Context, wire []byte) error {
			r := pmetricotlp.NewExportRequest()
			if err := r.UnmarshalProto(wire); err != nil {
				return err
			}
			c.requests = append(c.requests, r.Metrics())
			return nil
		},
	}
}

// points are the energies of the newest request, by "type/id", and "host".
func (c *capture) points(t testing.TB) map[string]pmetric.NumberDataPoint {
	t.Helper()
	out := map[string]pmetric.NumberDataPoint{}
	if len(c.requests) == 0 {
		return out
	}
	rms := c.requests[len(c.requests)-1].ResourceMetrics()
	for i := range rms.Len() {
		ms := rms.At(i).ScopeMetrics().At(0).Metrics()
		for j := range ms.Len() {
			name := ms.At(j).Name()
			if name != "hw.energy" && name != "hw.host.energy" {
				continue
			}
			ps := ms.At(j).Sum().DataPoints()
			for k := range ps.Len() {
				a := ps.At(k).Attributes()
				typ, hasType := a.Get("hw.type")
				id, _ := a.Get("hw.id")
				key := "host"
				if name == "hw.energy" {
					key = typ.Str() + "/" + id.Str()
				} else if hasType || a.Len() != 0 {
					t.Errorf("hw.host.energy has attributes %v; want none (S0-112)", a.AsRaw())
				}
				if _, twice := out[key]; twice {
					t.Errorf("%s is in one request twice", key)
				}
				out[key] = ps.At(k)
			}
		}
	}
	return out
}

// watts polls at each snapshot of a case and returns the power between the first
// and the last, rounded to a hundredth.
func watts(t *testing.T, name string) map[string]float64 {
	t.Helper()
	tree := sysfstest.Load(t, cases+name+"/tree.json")
	meters := openMeters(t, tree.FS)
	var c capture
	s := c.source(meters)
	var first, last map[string]pmetric.NumberDataPoint
	for i, snap := range tree.Snapshots {
		tree.Lay(t, i)
		c.now = t0.Add(time.Duration(snap.T * float64(time.Second)))
		if err := s.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last = c.points(t); first == nil {
			first = last
		}
	}
	out := map[string]float64{}
	for key, p := range last {
		was := first[key]
		seconds := p.Timestamp().AsTime().Sub(was.Timestamp().AsTime()).Seconds()
		out[key] = math.Round(100*(p.DoubleValue()-was.DoubleValue())/seconds) / 100
	}
	return out
}

// C49, C50, C52, S0-107, S0-109 to S0-112, S0-178: packages alone are cpu, psys
// is the host, each meter counts once, each zone wraps at its own range.
func TestCases(t *testing.T) {
	f := func(name string, want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, watts(t, name)); diff != "" {
			t.Errorf("%s: watts (-want +got):\n%s", name, diff)
		}
	}
	f("C49-rapl-only-package-zones", map[string]float64{"cpu/cpu0": 120, "cpu/cpu1": 90, "memory/dram0": 30, "host": 265})
	f("C50-rapl-one-counter-three-paths", map[string]float64{"cpu/cpu0": 100, "cpu/cpu1": 60})
	f("C52-rapl-wrap-per-zone", map[string]float64{"cpu/cpu0": 57.33, "cpu/cpu1": 60, "memory/dram0": 8})
}

// S0-93 to S0-97: what is exported, to the letter.
func TestShape(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C52-rapl-wrap-per-zone/tree.json")
	meters := openMeters(t, tree.FS)
	c := capture{now: t0}
	s := c.source(meters)
	for i := range 2 {
		tree.Lay(t, i)
		c.now = t0.Add(time.Duration(i) * time.Second)
		if err := s.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(c.requests[1])
	if err != nil {
		t.Fatal(err)
	}
	point := func(typ, id, parent, joules string) string {
		attrs := fmt.Sprintf(`{"key":"hw.type","value":{"stringValue":%q}},{"key":"hw.id","value":{"stringValue":%q}}`, typ, id)
		if parent != "" {
			attrs += fmt.Sprintf(`,{"key":"hw.parent","value":{"stringValue":%q}}`, parent)
		}
		return fmt.Sprintf(`{"attributes":[%s],"startTimeUnixNano":"1760000000000000000","timeUnixNano":"1760000001000000000","asDouble":%s}`, attrs, joules)
	}
	want := `{"resourceMetrics":[{"resource":{"attributes":[` +
		`{"key":"k8s.node.name","value":{"stringValue":"worker-01"}},{"key":"host.name","value":{"stringValue":"worker-01.local"}},` +
		`{"key":"service.name","value":{"stringValue":"wattloop"}},{"key":"service.instance.id","value":{"stringValue":"worker-01/host"}}]},` +
		`"scopeMetrics":[{"scope":{"name":"github.com/wattloop/wattloop/ingest/host"},"metrics":[{"name":"hw.energy","description":"energy that a component has used","unit":"J","sum":{` +
		`"dataPoints":[` + strings.Join([]string{point("cpu", "cpu0", "", "57.32885"), point("memory", "dram0", "cpu0", "8"), point("cpu", "cpu1", "", "60")}, ",") +
		`],"aggregationTemporality":2,"isMonotonic":true}}]}]}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if m, ok := names.Lookup("hw.energy"); !ok || m.Unit != "J" || m.Kind != names.Counter { // S0-91
		t.Errorf("the table of names has hw.energy as %+v, %v", m, ok)
	}
}

// text is a counter without a file: what it holds, or how it fails.
type text struct {
	value string
	err   error
}

func (x *text) ReadAt(p []byte, off int64) (int, error) {
	if x.err != nil {
		return 0, x.err
	}
	if off != 0 {
		return 0, errors.New("a counter is read at 0")
	}
	return copy(p, x.value), io.EOF
}

func cpu(id string, rng uint64, x *text) Meter {
	return Meter{Name: id + "-zone", Type: "cpu", ID: id, Path: id + "/energy_uj", Range: rng, File: x}
}

// A zone that cannot be read is a gap, never a zero; the energy of the gap is in
// the next point; the other zones go on.
func TestFailedReadIsAGap(t *testing.T) {
	a, b := &text{value: "1000000"}, &text{value: "5000000"}
	c := capture{now: t0}
	s := c.source([]Meter{cpu("cpu0", 1e11, a), cpu("cpu1", 1e11, b)})
	poll := func(wantErr string, want map[string]float64) {
		t.Helper()
		c.requests = nil
		err := s.Poll(t.Context())
		if wantErr == "" && err != nil || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("Poll = %v; want %q", err, wantErr)
		}
		got := map[string]float64{}
		for key, p := range c.points(t) {
			got[key] = p.DoubleValue()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("points (-want +got):\n%s", diff)
		}
		c.now = c.now.Add(time.Second)
	}
	poll("", map[string]float64{"cpu/cpu0": 0, "cpu/cpu1": 0})
	a.value, b.value = "101000000", "65000000"
	poll("", map[string]float64{"cpu/cpu0": 100, "cpu/cpu1": 60})
	a.value, b.err = "201000000", errors.New("input/output error")
	poll("host: cpu1-zone: input/output error", map[string]float64{"cpu/cpu0": 200})
	a.value, b.err, b.value = "301000000", nil, ""
	poll(`host: cpu1-zone: cpu1/energy_uj holds "": not a number`, map[string]float64{"cpu/cpu0": 300})
	a.value, b.value = "401000000", "245000000\n"
	poll("", map[string]float64{"cpu/cpu0": 400, "cpu/cpu1": 240})
	a.err, b.err = io.ErrUnexpectedEOF, io.ErrUnexpectedEOF
	poll("cpu0-zone: unexpected EOF\nhost: cpu1-zone: unexpected EOF", map[string]float64{})
}

// A counter that goes back with no range known, or steps by more than any
// package can use, starts the series anew: a reset, no spike and no zero watts.
func TestUnknownEnergyStartsAnew(t *testing.T) {
	f := func(name string, rng uint64, from, to string) {
		t.Helper()
		x := &text{value: from}
		c := capture{now: t0}
		s := c.source([]Meter{cpu("cpu0", rng, x)})
		for _, v := range []string{from, to} {
			x.value = v
			if err := s.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.now = c.now.Add(time.Second)
		}
		p := c.points(t)["cpu/cpu0"]
		if p.DoubleValue() != 0 || !p.StartTimestamp().AsTime().Equal(t0.Add(time.Second)) {
			t.Errorf("%s: value %g, start %v; want 0 since this reading", name, p.DoubleValue(), p.StartTimestamp().AsTime())
		}
	}
	f("went back, range unknown", 0, "9000000", "1000000")
	f("went back, range below the value", 100, "9000000", "1000000")
	f("began anew after a suspend", 262143328850, "100000000000", "1000000")
	f("a leap", 262143328850, "1000000", "100000000000")
	f("a range that one interval can wrap", 5_000_000_000, "1000000", "2000000")
}

func TestClockSteps(t *testing.T) {
	x := &text{value: "1000000"}
	c := capture{now: t0}
	s := c.source([]Meter{cpu("cpu0", 1e12, x)})
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, back := range []time.Duration{0, time.Second, time.Minute} {
		c.requests, c.now = nil, t0.Add(-back)
		if err := s.Poll(t.Context()); err == nil || len(c.requests) != 0 {
			t.Errorf("clock %s back: Poll = %v and %d requests; want a gap", back, err, len(c.requests))
		}
	}
	c.now = t0.Add(-time.Hour)
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := c.points(t)["cpu/cpu0"]; p.DoubleValue() != 0 || !p.StartTimestamp().AsTime().Equal(c.now) {
		t.Errorf("clock an hour back: value %g, start %v; want a new series", p.DoubleValue(), p.StartTimestamp().AsTime())
	}
}

// X11: zones of dies that mirror one counter count once, dies with counters of
// their own are summed, and both are one component of the package.
func TestDies(t *testing.T) {
	run := func(a, b []string, want float64) {
		t.Helper()
		x, y := &text{}, &text{}
		c := capture{now: t0}
		s := c.source([]Meter{cpu("cpu0", 65532610987, x), cpu("cpu0", 65532610987, y)})
		for i := range a {
			x.value, y.value = a[i], b[i]
			if err := s.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.now = c.now.Add(time.Second)
		}
		if got := c.points(t)["cpu/cpu0"].DoubleValue(); math.Abs(got-want) > 1e-9 {
			t.Errorf("dies %v and %v: %g J; want %g", a, b, got, want)
		}
	}
	run([]string{"10360237493", "10460237493"}, []string{"10359908363", "10459908363"}, 100)
	run([]string{"10360237493", "10460237493"}, []string{"20000000000", "20060000000"}, 160)
	run([]string{"65532610000", "99999013"}, []string{"65532600000", "99989013"}, 100)                                  // both wrap
	run([]string{"65532610000", "99999013"}, []string{"3", "99999999"}, 99.999013+0.000987)                             // one had wrapped already
	run([]string{"0", "100000000", "200000000", "300000000"}, []string{"0", "60000000", "120000000", "180000000"}, 420) // apart once seen so

	meters, err := Find(sysfstest.Corpus(t, "mlco2-codecarbon/rapl_multidie_threadripper1950x.tar.gz", "threadripper1950x/sys"))
	if err != nil || len(meters) != 2 || meters[0].ID != "cpu0" || meters[1].ID != "cpu0" {
		t.Errorf("Find = %+v, %v; want two meters of cpu0", meters, err)
	}
}

// However a counter wraps, the published energy is exactly what was used.
func TestWrapIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rapid.Uint64Range(6_000_000_001, 1<<63).Draw(rt, "range")
		raw := rapid.Uint64Range(0, rng-1).Draw(rt, "first")
		x := &text{value: fmt.Sprint(raw)}
		c := &component{typ: "cpu", id: "cpu0", counters: []*counter{{meter: cpu("cpu0", rng, x), apart: true}}}
		now, used := t0, uint64(0)
		if _, err := c.poll(now, Boot{}); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(0, 20).Draw(rt, "polls") {
			step := rapid.Uint64Range(0, min(rng-1, 1e9)).Draw(rt, "step")
			raw = (raw + step) % rng
			used += step
			now = now.Add(time.Second)
			x.value = fmt.Sprint(raw)
			before := c.total
			if _, err := c.poll(now, Boot{}); err != nil {
				rt.Fatal(err)
			}
			if c.total < before {
				rt.Fatalf("the counter fell from %d to %d", before, c.total)
			}
		}
		if c.total != used || !c.start.Equal(t0) {
			rt.Errorf("published %d µJ since %v; used %d", c.total, c.start, used)
		}
	})
}

func TestFind(t *testing.T) {
	f := func(tree sysfs.FS, want ...string) {
		t.Helper()
		meters, err := Find(tree)
		var names []string
		for _, m := range meters {
			names = append(names, m.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" || err != nil {
			t.Errorf("%v, meters (-want +got):\n%s", err, diff)
		}
	}
	f(sysfs.New(t.TempDir())) // a machine without RAPL
	f(sysfstest.Load(t, cases+"C49-rapl-only-package-zones/tree.json").FS, "package-0", "dram of package-0", "package-1", "psys")
}

type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// Run polls at its interval, and says once that a zone fails, and that it heals.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		x := &text{value: "1000000"}
		m := cpu("cpu0", 1e12, x)
		m.File = readerAt(func(p []byte, off int64) (int, error) {
			if broken.Load() {
				return 0, errors.New("no such device")
			}
			return x.ReadAt(p, off)
		})
		var c capture
		s := c.source([]Meter{m})
		s.Clock = time.Now
		s.Interval = 5 * time.Second
		var log bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		wait := func() { time.Sleep(5 * time.Second); synctest.Wait() }
		synctest.Wait()
		wait()
		broken.Store(true)
		wait()
		wait()
		broken.Store(false)
		wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if len(c.requests) != 3 {
			t.Errorf("%d requests; want 3 of 5 polls", len(c.requests))
		}
		want := "level=INFO msg=\"host meters\" rapl=1 cpufreq=0 hwmon=0 nvml=0 pressure=0 network=0 infiniband=0\n" +
			"level=WARN msg=\"meter cannot be read\" meter=\"rapl cpu0-zone\" reason=\"host: cpu0-zone: no such device\" remedy=\"look at what the reason names; the rest is read all the same\"\n" +
			"level=INFO msg=\"meter is read again\" meter=\"rapl cpu0-zone\"\n"
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func microjoules(n uint64) string { return fmt.Sprint(n) }

// openMeters opens the meters of a tree, as the warden does.
func openMeters(t *testing.T, f sysfs.FS) []Meter {
	t.Helper()
	meters, err := Find(f)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range meters {
		if meters[i].File, err = f.Open(m.Path); err != nil {
			t.Fatal(err)
		}
	}
	return meters
}
