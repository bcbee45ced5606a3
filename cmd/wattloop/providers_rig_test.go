package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/ingest/host"
)

const (
	storyNode  = "worker-01"
	storyEvery = 5 // seconds between two readings of the meters
	storyRange = 65_532_610_987
)

var storyStart = time.Unix(1_760_000_000, 0)

// plant is a machine of two CPU packages: each draws its load, and no more than
// its cap. What it draws changes at the instants of the story alone, so that the
// energy between two of them is exact.
type plant struct {
	load  float64 // of each package, watts
	draws [2]float64
	used  [2]uint64 // microjoules
	first [2]uint64 // where the counters stood
	dark  bool      // its meters cannot be read
}

// newPlant has a first counter that wraps in the middle of the story.
func newPlant() *plant { return &plant{first: [2]uint64{storyRange - 9_000_000_000, 17_000_000}} }

func (p *plant) run(seconds float64, caps []float64) {
	for i := range p.draws {
		p.used[i] += uint64(p.draws[i] * seconds * 1e6)
		p.draws[i] = min(p.load, caps[i])
	}
}

// wiring is how one engine is fed: the variables that Joulie's agent and controller
// would have, and the form that the endpoint answers in.
type wiring struct {
	name   string
	env    map[string]string // {at} is the endpoint's address
	legacy bool
}

func (w wiring) pulls() bool {
	return w.env["TELEMETRY_CPU_SOURCE"] == "http" || w.env["NODE_POWER_SOURCE"] == "http"
}

// storyRig is an engine as serve builds it, on a clock that the story tells, over
// packages in memory. It reads the plant by its own files or over HTTP.
type storyRig struct {
	t     *testing.T
	w     wiring
	sys   string
	told  atomic.Int64 // seconds of the story; the asking goroutine reads them too
	plant *plant
	caps  *actuate.Dry
	parts *parts
	draws [2]float64 // of the interval that has ended

	asked   chan http.ResponseWriter // a question that waits for its answer
	answer  chan struct{}            // it was given
	waiting http.ResponseWriter      // of the question that waits now
}

// newStoryRig builds the engine with rules over the shipped ones.
func newStoryRig(t *testing.T, w wiring, rules string) *storyRig {
	t.Helper()
	dir := t.TempDir()
	r := &storyRig{
		t: t, w: w, sys: filepath.Join(dir, "sys"), plant: newPlant(), caps: dryPackages(2),
		asked: make(chan http.ResponseWriter), answer: make(chan struct{}),
	}
	r.lay()
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		select {
		case r.asked <- rw:
		case <-req.Context().Done():
			return
		}
		select {
		case <-r.answer:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(endpoint.Close)
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := w.env[name]
		return strings.ReplaceAll(v, "{at}", endpoint.URL), ok
	}
	c, err := loaded(t, "node: "+storyNode+"\n", "", env, "--storage.path", filepath.Join(dir, "data"), "--state.path", filepath.Join(dir, "state"),
		"--run.path", filepath.Join(dir, "run"), "--sysfs", r.sys, "--rules", filepath.Join(dir, "rules.yaml"), "--storage.durability=os")
	if err != nil {
		t.Fatal(err)
	}
	// The story's clock says when a poll was; the ticker has only to ask again.
	c.PullInterval, c.PullTimeout = time.Millisecond, time.Hour
	r.build(c)
	return r
}

func (r *storyRig) build(c *config) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	set, _, err := c.loadRules()
	if err != nil {
		r.t.Fatal(err)
	}
	clk := clock{told: r.now}
	in, err := c.entry(clk, log)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.parts, err = build(c, clk, log, set, r.caps, nil, in); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.parts.close(); err != nil {
			r.t.Error(err)
		}
	})
	if r.parts.host != nil {
		r.parts.host.Boot = func() host.Boot { return host.Boot{ID: "story", Up: r.at()} }
	}
	if (r.parts.host == nil) != (r.w.env["TELEMETRY_CPU_SOURCE"] == "http") {
		r.t.Fatalf("%s: the machine's own meters are on: %v", r.w.name, r.parts.host != nil)
	}
	if !r.w.pulls() {
		return
	}
	ctx, done := r.t.Context(), make(chan error, 1)
	go func() { done <- r.parts.puller.Run(ctx) }()
	r.t.Cleanup(func() { // the context has ended
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

// lay writes the machine's files.
func (r *storyRig) lay() {
	r.t.Helper()
	for i := range r.plant.draws {
		zone := filepath.Join(r.sys, "class/powercap", fmt.Sprintf("intel-rapl:%d", i))
		if err := os.MkdirAll(zone, 0o755); err != nil {
			r.t.Fatal(err)
		}
		uj := fmt.Sprint((r.plant.first[i] + r.plant.used[i]) % storyRange)
		if r.plant.dark {
			uj = "" // as a driver answers that has lost its device
		}
		for name, text := range map[string]string{
			"name": fmt.Sprintf("package-%d", i), "energy_uj": uj, "max_energy_range_uj": fmt.Sprint(uint64(storyRange)), "enabled": "1",
		} {
			if err := os.WriteFile(filepath.Join(zone, name), []byte(text+"\n"), 0o644); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// document is what the endpoint answers: the HTTP input format, with cumulative
// energy alone, as the files have it; or the legacy JSON.
func (r *storyRig) document() []byte {
	type m = map[string]any
	if r.w.legacy {
		return mustJSON(r.t, m{"packagePowerWatts": r.draws[0] + r.draws[1]})
	}
	attr := func(key, v string) m { return m{"key": key, "value": m{"stringValue": v}} }
	var points []m
	for i, used := range r.plant.used {
		points = append(points, m{
			"attributes":        []m{attr("hw.type", "cpu"), attr("hw.id", fmt.Sprintf("cpu%d", i))},
			"startTimeUnixNano": fmt.Sprint(storyStart.UnixNano()), "timeUnixNano": fmt.Sprint(r.now().UnixNano()), "asDouble": float64(used) / 1e6,
		})
	}
	return mustJSON(r.t, m{"resourceMetrics": []m{{
		"resource": m{"attributes": []m{attr("k8s.node.name", storyNode), attr("service.instance.id", storyNode)}},
		"scopeMetrics": []m{{"metrics": []m{{
			"name": "hw.energy", "unit": "J", "sum": m{"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": points},
		}}}},
	}}})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reply answers the question that waits, and returns once what was answered is
// stored: the next question is there.
func (r *storyRig) reply() {
	if r.waiting == nil {
		r.waiting = <-r.asked
	}
	if r.plant.dark {
		r.waiting.WriteHeader(http.StatusInternalServerError)
	} else if _, err := r.waiting.Write(r.document()); err != nil {
		r.t.Error(err)
	}
	r.answer <- struct{}{}
	r.waiting = <-r.asked
}

// step is the next instant of the story: the plant has run, its meters are read as
// this engine reads them, and the rules are evaluated.
func (r *storyRig) step(load float64, dark bool) *engine.Report {
	r.t.Helper()
	r.told.Add(storyEvery)
	r.plant.load, r.plant.dark, r.draws = load, dark, r.plant.draws
	var caps []float64
	for _, d := range r.caps.Devices() {
		caps = append(caps, d.Current)
	}
	r.plant.run(storyEvery, caps)
	r.lay()
	if r.parts.host != nil {
		err := r.parts.host.Poll(r.t.Context())
		unread := r.parts.host.Unread()
		if dark != (err != nil) || dark != (len(unread) == 2) {
			r.t.Errorf("at %s: poll: %v, unread %v", r.at(), err, unread)
		}
	}
	if r.w.pulls() {
		r.reply()
	}
	rep, err := r.parts.eng.Step(r.t.Context(), r.now().UnixMilli())
	if err != nil {
		r.t.Errorf("at %s: step: %v", r.at(), err)
	}
	return rep
}

func (r *storyRig) at() time.Duration { return time.Duration(r.told.Load()) * time.Second }

func (r *storyRig) now() time.Time { return storyStart.Add(r.at()) }

// view is what a step has read and decided, without where it came from.
type view struct {
	At                   time.Duration
	Power, CPU, Packages string // readings: value, quality, mark
	Phase                string // of the control guard, with its value
	Intents              string // what it asked of each package, and what became of it
	Caps                 string // what the packages hold

	watts float64 // of Power
	valid bool
}

// chapter is a part of the story: so long with so much load on each package.
type chapter struct {
	seconds int
	load    float64
	dark    bool // nothing can be read of the machine
}

// tell has the machine live through the story, and says what every step of the
// engine saw and did.
func (r *storyRig) tell(story []chapter) []view {
	r.t.Helper()
	var out []view
	for _, c := range story {
		for range c.seconds / storyEvery {
			out = append(out, r.view(r.step(c.load, c.dark)))
		}
	}
	return out
}

func (r *storyRig) view(rep *engine.Report) view {
	r.t.Helper()
	v := view{At: r.at()}
	for _, k := range rep.Readings {
		said := fmt.Sprint(k.Quality)
		if k.Valid {
			said = fmt.Sprint(k.Value, " ", k.Quality)
		}
		if k.Partial {
			said += " partial"
		}
		switch k.Name {
		case "node_power":
			v.Power, v.watts, v.valid = said, k.Value, k.Valid
		case "cpu_power":
			v.CPU = said
		case "cpu_packages":
			v.Packages = said
		}
	}
	i := slices.IndexFunc(rep.Controls, func(c *engine.ControlReport) bool { return c.Name == "guard" })
	if i < 0 {
		r.t.Fatalf("no control guard in %+v", rep.Controls)
	}
	c := rep.Controls[i]
	v.Phase = fmt.Sprint(c.Phase)
	if c.Phase != engine.Idle {
		v.Phase += fmt.Sprint(" ", c.Value)
	}
	for _, o := range c.Outcomes {
		v.Intents += fmt.Sprintf("%s %g %s %s; ", o.Device, o.Desired, o.Result, o.Reason)
	}
	for _, d := range rep.Devices {
		v.Caps += fmt.Sprintf("%g ", d.Current)
	}
	return v
}
