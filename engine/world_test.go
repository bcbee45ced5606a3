package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/presets"
	"github.com/wattloop/wattloop/rules"
	rulesd "github.com/wattloop/wattloop/rules.d"
	"github.com/wattloop/wattloop/store"
)

// base is the instant that the tests count from, in Unix seconds.
const base = 1_760_000_000

// enforce lets the shipped control write.
const enforce = `
version: 1
controls:
  node_power_budget: {mode: enforce}
`

// breaker is a control for protection, beside which the shipped one observes.
const breaker = `
version: 1
controls:
  breaker:
    mode: enforce
    key: [k8s_node_name]
    engage: {when: node_power > 500, for: 5s}
    release: {when: node_power < 450, for: 10s}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 100
    limits: {min: 60, max: 250}
    slew: {down: 50, up: 50, every: 5s}
    ttl: 15s
    purpose: protection
    safe_cap: 80
`

// world is an engine with all that is real around it but hardware: a store on
// disk, the rules of the binary, a governor over packages in memory. Times are
// seconds after base.
type world struct {
	t    testing.TB
	db   *store.DB
	link *tap
	gov  *actuate.Governor
	eng  *engine.Engine
	reg  *prometheus.Registry
	log  bytes.Buffer

	mu      sync.Mutex
	fail    error // what every query answers, if set
	recall  rules.QueryFunc
	queries int
	now     time.Time
}

// tap is the packages, and counts what is sent to them.
type tap struct {
	*actuate.Dry
	sets, all int
	mute      bool // nothing that is sent arrives
}

func (l *tap) Do(ctx context.Context, cmds []actuate.Command) ([]actuate.Reply, error) {
	if l.mute {
		return nil, fmt.Errorf("the warden does not answer")
	}
	for _, c := range cmds {
		l.all++
		if c.Op == actuate.OpSet {
			l.sets++
		}
	}
	return l.Dry.Do(ctx, cmds)
}

func newWorld(t testing.TB, dropIns ...string) *world {
	t.Helper()
	w := bareWorld(t)
	w.restart(dropIns...)
	return w
}

// bareWorld has no engine yet.
func bareWorld(t testing.TB) *world {
	t.Helper()
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	var ds []actuate.Description
	for i := range 2 {
		ds = append(ds, actuate.Description{
			ID: fmt.Sprintf("rapl:package-%d", i), Name: fmt.Sprintf("cpu%d", i), Action: actuate.ActionRAPLCap, Unit: "W",
			Labels: map[string]string{"hw_type": "cpu", "hw_id": fmt.Sprintf("cpu%d", i)},
			Max:    250, Tolerance: 1, Writable: true,
		})
	}
	return &world{t: t, db: db, link: &tap{Dry: actuate.NewDry(ds, nil)}}
}

func newGovernor(w *world) *actuate.Governor { return &actuate.Governor{Link: w.link} }

// failWith has every query answer err from now on.
func (w *world) failWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

// restart is a new process over the same store and the same devices.
func (w *world) restart(dropIns ...string) {
	w.t.Helper()
	w.gov = newGovernor(w)
	w.reg = prometheus.NewRegistry()
	w.eng = engine.New(engine.Options{
		Rules: loadRules(w.t, dropIns...), Query: w.query, Recall: w.recall, Interval: w.db.Interval, Store: w.db, Governor: w.gov,
		Clock: w.clock, Registerer: w.reg,
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
}

// loadRules loads the rules of the binary and the drop-ins over them.
func loadRules(t testing.TB, dropIns ...string) *rules.Set {
	t.Helper()
	return loadRulesAs(t, rules.Settings{}, dropIns...)
}

func loadRulesAs(t testing.TB, settings rules.Settings, dropIns ...string) *rules.Set {
	t.Helper()
	sources, err := rules.Sources(presets.Files, "presets")
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := rules.Sources(rulesd.Files, "rules.d")
	if err != nil {
		t.Fatal(err)
	}
	sources = append(sources, shipped...)
	for i, d := range dropIns {
		sources = append(sources, rules.Source{Name: fmt.Sprintf("%d.yaml", i), Data: []byte(d)})
	}
	settings.Off = map[string]string{"presets/facility/preset.yaml": "off, as it is by default"}
	set, msgs := rules.Load(sources, settings)
	if set == nil {
		t.Fatal(msgs)
	}
	return set
}

// clock is the time of the last step, or the bubble's before the first.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.IsZero() {
		return time.Now()
	}
	return w.now
}

func (w *world) query(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
	w.mu.Lock()
	fail := w.fail
	w.queries++
	w.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	got, err := w.db.Instant(ctx, expr, ts)
	if err != nil {
		return nil, err
	}
	out := make([]rules.Sample, len(got))
	for i, s := range got {
		out[i] = rules.Sample(s)
	}
	return out, nil
}

func at(seconds float64) int64 { return int64(math.Round((base + seconds) * 1000)) }

// after is an instant as seconds after base.
func after(ts int64) float64 { return float64(ts)/1000 - base }

func metric(t testing.TB, series string) labels.Labels {
	t.Helper()
	ls, err := parser.NewParser(parser.Options{}).ParseMetric(series)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// add stores one sample, and tells the engine as ingest does.
func (w *world) add(series string, seconds, v float64) {
	w.t.Helper()
	ls := metric(w.t, series)
	w.store(ls, seconds, v)
	if w.eng != nil {
		w.eng.Grew(w.eng.Touched(ls), at(seconds))
	}
}

// store stores one sample and tells nobody.
func (w *world) store(ls labels.Labels, seconds, v float64) {
	w.t.Helper()
	app := w.db.Appender(context.Background())
	if _, err := app.Append(0, ls, at(seconds), v); err != nil {
		_ = app.Rollback() // the store waits for it before it closes
		w.t.Fatalf("append %s at %g: %v", ls, seconds, err)
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

// end stores a staleness marker.
func (w *world) end(series string, seconds float64) {
	w.t.Helper()
	w.add(series, seconds, math.Float64frombits(value.StaleNaN))
}

func power(component string) string {
	return fmt.Sprintf(`hw_power_watts{hw_type=%q,hw_id=%q,k8s_node_name="a"}`, strings.TrimRight(component, "0123456789"), component)
}

// node stores what two packages and a GPU draw.
func (w *world) node(seconds, cpu, gpu float64) {
	w.t.Helper()
	w.add(power("cpu0"), seconds, cpu)
	w.add(power("cpu1"), seconds, cpu)
	w.add(power("gpu0"), seconds, gpu)
}

// step steps the engine. What could not be evaluated is an error only where
// nothing fails on purpose.
func (w *world) step(seconds float64) *engine.Report {
	w.t.Helper()
	w.mu.Lock()
	w.now = time.UnixMilli(at(seconds))
	failing := w.fail != nil
	w.mu.Unlock()
	rep, err := w.eng.Step(context.Background(), at(seconds))
	if err != nil && !failing {
		w.t.Fatalf("step at %g: %v", seconds, err)
	}
	return rep
}

// load has the node draw so much, every 5 s from first to last, with a step at
// each.
func (w *world) load(first, last, cpu, gpu float64) {
	w.t.Helper()
	for s := first; s <= last; s += 5 {
		w.node(s, cpu, gpu)
		w.step(s)
	}
}

// steps has the rules' timers run every 5 s, without any input.
func (w *world) steps(first, last float64) {
	w.t.Helper()
	for s := first; s <= last; s += 5 {
		w.step(s)
	}
}

// control is one control of a report, which must be there.
func control(t testing.TB, rep *engine.Report, name string) *engine.ControlReport {
	t.Helper()
	i := slices.IndexFunc(rep.Controls, func(c *engine.ControlReport) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("at %g: no control %s in %v", after(rep.TS), name, rep.Controls)
	}
	return rep.Controls[i]
}

// want compares how a control and the packages stand after the last step:
// phase, value where one is asked for, what the packages hold.
func (w *world) want(name, want string) {
	w.t.Helper()
	rep := w.eng.Report()
	c := control(w.t, rep, name)
	got := string(c.Phase)
	if c.Phase == engine.Engaged || c.Phase == engine.Holding {
		got += fmt.Sprintf(" %g", c.Value)
	}
	got += ":"
	for _, d := range rep.Devices {
		got += fmt.Sprintf(" %g", d.Current)
	}
	if got != want {
		w.t.Errorf("at %g s: %s is %s; want %s (quality %s, why %q)", after(rep.TS), name, got, want, c.Quality, c.Why)
	}
}

// samples are what a query of the store answers at an instant, one a line:
// labels and value.
func (w *world) samples(expr string, seconds float64) string {
	w.t.Helper()
	got, err := w.db.Instant(context.Background(), expr, at(seconds))
	if err != nil {
		w.t.Fatal(err)
	}
	lines := make([]string, len(got))
	for i, s := range got {
		lines[i] = fmt.Sprintf("%s %g", s.Metric, s.V)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// metric is the one value of a metric, labels as pairs; 0 if it is not there.
func (w *world) metric(name string, pairs ...string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			skip := false
			for i := 0; i < len(pairs); i += 2 {
				skip = skip || has[pairs[i]] != pairs[i+1]
			}
			if skip {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
