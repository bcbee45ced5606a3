package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/twin"
)

// nodesPath is where the documents of nodes lie, and the target that was put.
func (c *config) nodesPath() string { return filepath.Join(c.StatePath, "nodes") }

// How often the loop of the twin looks and says what, by the program's clock.
const (
	twinTick      = time.Second
	targetEvery   = 5 * time.Second // a target that stands, as a sample
	documentEvery = 5 * time.Second
	discoverEvery = 10 * time.Minute
)

// twins has Joulie's documents: it follows the target, tells it to the rules as
// series, and keeps the files.
type twins struct {
	p        *parts
	keeper   *twin.Keeper
	targets  targetSeries
	files    twin.Files
	hardware atomic.Pointer[twin.Hardware]
	wiring   atomic.Pointer[twin.Wiring]

	// Of the loop alone.
	wroteAt, foundAt time.Time
	failing          string
}

// openTwins takes up the target and looks at the hardware.
func (p *parts) openTwins(set *rules.Set) error {
	t := &twins{p: p, keeper: &twin.Keeper{Node: p.c.Node, Dir: p.c.nodesPath(), Log: p.log.With("part", "twin")}}
	t.targets = targetSeries{p: p, standing: map[string]standingTarget{}}
	t.files.Dir = p.c.nodesPath()
	t.rewire(p.c, set)
	t.discover(p.clk.Now())
	p.twins = t
	return t.keeper.Open(p.c.TwinSpec)
}

// rewire takes how node power is read by a set of rules, and what the control paths
// write to.
func (t *twins) rewire(c *config, set *rules.Set) {
	w := twin.Wiring{Source: twin.SourceNone, Backend: t.p.c.backends()} // which need a restart
	if r := set.Reading(twin.NodePower); r != nil {
		w.Source = twin.SourceStore
		if w.Preset, w.Scope = presetOf(r); w.Scope == noScope {
			w.Scope = ""
		}
		switch w.Preset {
		case sourceHTTP:
			w.Source, w.Preset, w.Failed, w.Warming = twin.SourceHTTP, "", t.p.pullFailed, t.p.pullWarming
			w.ScopeOf = t.p.pullScope
		case sourceNone:
			w.Source = twin.SourceNone
		}
	}
	t.wiring.Store(&w)
}

// discover looks at the hardware once more.
func (t *twins) discover(now time.Time) {
	h := twin.Discover(t.p.c.Node, sysfs.New(t.p.c.Sysfs), cpuinfo(t.p.c.Sysfs))
	t.hardware.Store(&h)
	t.foundAt = now
}

// cpuinfo names the processor of this machine; "" where the tree may be another's.
func cpuinfo(tree string) string {
	if !sysfs.IsReal(tree) {
		return ""
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil { // the document says that the model is not known
		return ""
	}
	return string(b)
}

// local is what this machine adds to its own node.
func (t *twins) local() twin.Local {
	spec, why := t.keeper.Now()
	return twin.Local{Node: t.p.c.Node, Spec: spec, SpecError: why, Targets: map[string]twin.Target{
		twin.PathCPU: spec.Target(twin.PathCPU, t.hardware.Load().Status.CPU.MaxWatts()),
		twin.PathGPU: spec.Target(twin.PathGPU, 0),
	}}
}

// unused says of the rules that read what is not set up why they have no answer.
func (t *twins) unused() map[string]string {
	out := map[string]string{}
	none := t.keeper.Unused()
	for path, of := range map[string]string{twin.PathCPU: "CPU packages", twin.PathGPU: "GPUs"} {
		why := none
		if why == "" {
			if l := t.local(); l.Spec != nil && l.Targets[path] == (twin.Target{}) {
				why = "the target asks for nothing of the " + of
			}
		}
		if why != "" {
			out["twin_spec_"+path+"_cap_watts"], out["twin_spec_"+path+"_cap"] = why, why
		}
	}
	if t.wiring.Load().Source == twin.SourceNone {
		out[twin.NodePower] = "presets.node_power.source is none"
	}
	return out
}

// run follows the target and keeps the files until ctx ends.
func (t *twins) run(ctx context.Context, tick <-chan time.Time) error {
	t.complain("files of nodes", t.files.Begin())
	for {
		t.keeper.Poll()
		now := t.p.clk.Now()
		err := t.targets.tell(ctx, now, t.local().Targets)
		if now.Sub(t.wroteAt) >= documentEvery || now.Before(t.wroteAt) {
			t.wroteAt = now
			all := twin.All(t.p.eng.Report(), *t.wiring.Load(), t.local())
			err = errors.Join(err, t.files.Write(all, *t.hardware.Load()))
		}
		if ctx.Err() == nil {
			t.complain("target and files of nodes", err)
		}
		if now.Sub(t.foundAt) >= discoverEvery || now.Before(t.foundAt) {
			t.discover(now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// complain logs a failure when it begins, and when it is over.
func (t *twins) complain(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == t.failing:
	case text != "":
		t.p.log.Warn(what, "err", err)
	default:
		t.p.log.Info(what + " are written again")
	}
	t.failing = text
}

// ops is what the API does with nodes.
func (t *twins) ops() api.NodeOps {
	show := func(node string) twin.Twin {
		return twin.New(node, t.p.eng.Report(), *t.wiring.Load(), t.local())
	}
	own := func(node string) error {
		if node == t.p.c.Node {
			return nil
		}
		return &api.CodedError{Code: http.StatusNotFound, Err: errors.New("node " + node + " is not this machine, " + t.p.c.Node + "; ask the wattloop that runs there")}
	}
	return api.NodeOps{
		Twin: func(node string) (twin.Twin, bool) {
			known := false
			for _, n := range twin.Nodes(t.p.eng.Report(), t.p.c.Node) {
				known = known || n == node
			}
			return show(node), known
		},
		Hardware: func(node string) (twin.Hardware, bool) { return *t.hardware.Load(), node == t.p.c.Node },
		PutSpec: func(node string, body []byte) (twin.Twin, error) {
			if err := own(node); err != nil {
				return twin.Twin{}, err
			}
			if _, err := t.keeper.Put(body); err != nil {
				return twin.Twin{}, coded(err)
			}
			return show(node), nil
		},
		DeleteSpec: func(node string) (twin.Twin, error) {
			if err := own(node); err != nil {
				return twin.Twin{}, err
			}
			if err := t.keeper.Withdraw(); err != nil {
				return twin.Twin{}, coded(err)
			}
			return show(node), nil
		},
	}
}

// coded gives an error of the keeper its HTTP status.
func coded(err error) error {
	var e *twin.SpecError
	switch {
	case errors.As(err, &e):
		return &api.CodedError{Code: http.StatusUnprocessableEntity, Err: err}
	case errors.Is(err, twin.ErrWatched):
		return &api.CodedError{Code: http.StatusConflict, Err: err}
	}
	return err
}

// targetName is the series of a path's target, which the rule of it reads.
func targetName(path string) string { return "wattloop_twin_spec_" + path + "_cap_watts" }

func targetLabels(path, node string) labels.Labels {
	return labels.FromStrings("__name__", targetName(path), "k8s_node_name", node)
}
