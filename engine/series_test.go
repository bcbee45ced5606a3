package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
)

const ours = `{__name__=~"wattloop_.+"}`

// What a step writes back, at the start, while it engages, and at the end.
func TestSeriesWrittenBack(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 0, 100, 100)
	w.wantSamples(0, `
{__name__="wattloop_cap_watts", device="cpu0"} 250
{__name__="wattloop_cap_watts", device="cpu1"} 250
{__name__="wattloop_control_engaged", control="node_power_budget", k8s_node_name="a"} 0
{__name__="wattloop_control_held_seconds", condition="release", control="node_power_budget", k8s_node_name="a"} 0
{__name__="wattloop_reading", k8s_node_name="a", reading="cpu_packages"} 2
{__name__="wattloop_reading", k8s_node_name="a", reading="cpu_power"} 200
{__name__="wattloop_reading", k8s_node_name="a", reading="node_power"} 300`)
	w.load(5, 20, 200, 160)
	w.wantSamples(20, `
{__name__="wattloop_cap_watts", device="cpu0"} 190
{__name__="wattloop_cap_watts", device="cpu1"} 190
{__name__="wattloop_control_engaged", control="node_power_budget", k8s_node_name="a"} 1
{__name__="wattloop_control_held_seconds", condition="engage", control="node_power_budget", k8s_node_name="a"} 15
{__name__="wattloop_intent_watts", control="node_power_budget", device="cpu0", k8s_node_name="a"} 120
{__name__="wattloop_intent_watts", control="node_power_budget", device="cpu1", k8s_node_name="a"} 120
{__name__="wattloop_outcome", action="rapl.set_power_cap_watts", control="node_power_budget", device="cpu0", k8s_node_name="a", reason="ramping", result="applied"} 1
{__name__="wattloop_outcome", action="rapl.set_power_cap_watts", control="node_power_budget", device="cpu1", k8s_node_name="a", reason="ramping", result="applied"} 1
{__name__="wattloop_reading", k8s_node_name="a", reading="cpu_packages"} 2
{__name__="wattloop_reading", k8s_node_name="a", reading="cpu_power"} 400
{__name__="wattloop_reading", k8s_node_name="a", reading="node_power"} 560`)
	for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
		w.end(power(c), 25)
	}
	w.steps(25, 30) // a gap is a gap at once: no reading is left, nor an intent, nor an outcome
	w.wantSamples(30, `
{__name__="wattloop_cap_watts", device="cpu0"} 250
{__name__="wattloop_cap_watts", device="cpu1"} 250
{__name__="wattloop_control_engaged", control="node_power_budget", k8s_node_name="a"} 0`)
}

func (w *world) wantSamples(seconds float64, want string) {
	w.t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), w.samples(ours, seconds)); d != "" {
		w.t.Errorf("at %g s (-want +got):\n%s", seconds, d)
	}
}

// A reading's series has a sample for each evaluation, not for each step.
func TestReadingsAreStoredWhenTheyAreEvaluated(t *testing.T) {
	w := newWorld(t)
	w.node(0, 100, 100)
	for s := 0.; s <= 12; s++ {
		w.step(s)
	}
	if got, want := w.samples(`count_over_time(wattloop_reading{reading="node_power"}[1m])`, 12), `{k8s_node_name="a", reading="node_power"} 3`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// docs/metrics.md lists every series and every metric of the engine.
func TestMetricsPage(t *testing.T) {
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	series, metrics, ok := strings.Cut(string(b), "## Metrics at")
	if !ok {
		t.Fatal("docs/metrics.md has no section on the metrics")
	}
	w := newWorld(t, enforce)
	w.load(0, 5, 200, 160)
	seen := map[string]bool{}
	for s := 10.; s < 100; s += 5 {
		cpu := 200.
		if s > 30 {
			cpu = 50
		}
		w.load(s, s, cpu, 160)
		for _, line := range strings.Split(w.samples("count by (__name__) ("+ours+")", s), "\n") {
			seen[regexp.MustCompile(`wattloop_\w+`).FindString(line)] = true
		}
	}
	var got, want []string
	for name := range seen {
		got = append(got, name)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(wattloop_\\w+)`").FindAllStringSubmatch(series, -1) {
		want = append(want, m[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the series of docs/metrics.md (-page +true):\n%s", d)
	}
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !regexp.MustCompile("(?m)^\\| `" + f.GetName() + "[`{]").MatchString(metrics) {
			t.Errorf("docs/metrics.md does not list %s", f.GetName())
		}
	}
}

// The counters say what happened: a write and each change of the word once,
// whatever the number of steps.
func TestMetrics(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	for _, tt := range []struct {
		reason string
		want   float64
	}{{"ramping", 4}, {"", 2}, {"unchanged", 2}} {
		if got := w.metric("wattloop_outcomes_total", "action", actuate.ActionRAPLCap, "result", "applied", "reason", tt.reason); got != tt.want {
			t.Errorf("applied %q was counted %g times; want %g", tt.reason, got, tt.want)
		}
	}
	if got := w.metric("wattloop_reaction_seconds"); got != 3 {
		t.Errorf("%g reactions; want 3, one for each step that wrote", got)
	}
	if got := w.metric("wattloop_eval_seconds", "rule", "node_power_budget"); got != 13 {
		t.Errorf("%g evaluations; want 13", got)
	}
	if got := w.metric("wattloop_config_last_reload_successful"); got != 1 {
		t.Errorf("wattloop_config_last_reload_successful = %g; want 1", got)
	}
}

// flaky is a store whose commits fail while it is told to.
type flaky struct {
	storage.Appendable
	broken bool
}

func (f *flaky) Appender(ctx context.Context) storage.Appender {
	return &flakyAppender{f.Appendable.Appender(ctx), f}
}

type flakyAppender struct {
	storage.Appender
	of *flaky
}

var errFull = errors.New("the disk is full")

func (a *flakyAppender) Append(ref storage.SeriesRef, ls labels.Labels, ts int64, v float64) (storage.SeriesRef, error) {
	if a.of.broken {
		return 0, errFull
	}
	return a.Appender.Append(ref, ls, ts, v)
}

func (a *flakyAppender) Commit() error {
	if a.of.broken {
		return errors.Join(errFull, a.Appender.Rollback())
	}
	return a.Appender.Commit()
}

// A store that takes nothing does not stop the control; the step says so, in
// few words, and a series that ended meanwhile ends when the store is back.
func TestStoreTakesNothing(t *testing.T) {
	w := newWorld(t, enforce)
	f := &flaky{Appendable: w.db}
	w.eng = engine.New(engine.Options{
		Rules: loadRules(t, enforce), Query: w.query, Interval: w.db.Interval, Store: f, Governor: w.gov, Clock: w.clock,
		Registerer: prometheus.NewRegistry(),
	})
	w.load(0, 10, 200, 160)
	f.broken = true
	w.node(15, 200, 160)
	rep, err := w.eng.Step(context.Background(), at(15))
	if !errors.Is(err, errFull) || rep.Unstored != err.Error() || len(rep.Unstored) > 200 {
		t.Errorf("err %v, unstored %q; want both to say that the disk is full, shortly", err, rep.Unstored)
	}
	w.want("node_power_budget", "engaged 120: 190 190")
	for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
		w.end(power(c), 20)
	}
	if _, err := w.eng.Step(context.Background(), at(20)); err == nil {
		t.Error("no error")
	}
	f.broken = false
	if rep := w.step(25); rep.Unstored != "" {
		t.Errorf("unstored %q", rep.Unstored)
	}
	if got := w.samples("wattloop_reading", 25); got != "" {
		t.Errorf("the readings did not end: %s", got)
	}
}

// A failure that counts something is logged when it begins, not at each count.
func TestUnstoredIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	say := engine.NewFailureLog(slog.New(slog.NewTextHandler(&log, nil)))
	for _, mib := range []int{200, 199, 7} {
		say(&engine.Report{Unstored: fmt.Sprintf("store: /data: disk is nearly full: %d MiB free; %d samples in all", mib, 20-mib/100)})
	}
	if n := strings.Count(log.String(), "series not stored"); n != 1 {
		t.Errorf("said %d times; want once:\n%s", n, &log)
	}
	say(&engine.Report{})
	say(&engine.Report{Unstored: "store: /data: disk is nearly full: 3 MiB free"})
	if n := strings.Count(log.String(), "series not stored"); n != 2 {
		t.Errorf("said %d times after it was over; want twice:\n%s", n, &log)
	}
}
