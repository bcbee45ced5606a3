package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/pull"
	"github.com/wattloop/wattloop/internal/httpfile"
)

// Where an input comes from, in the words of NODE_POWER_SOURCE.
const (
	sourceStore = "prometheus"
	sourceHTTP  = "http"
	sourceNone  = "none"
)

// pullValue is an endpoint with {node} in it.
type pullValue struct{ p *string }

func pullEndpoint(p *string) pflag.Value { return pullValue{p} }
func (v pullValue) String() string       { return *v.p }
func (v pullValue) Type() string         { return "url" }
func (v pullValue) Set(s string) error {
	if s != "" {
		if err := pull.CheckEndpoint(s); err != nil {
			return err
		}
	}
	*v.p = s
	return nil
}

// cpuSource takes TELEMETRY_CPU_SOURCE, which says three things in one word: host
// and none whether this machine is read, http that an endpoint is, and the machine
// is not.
func (c *config) cpuSource(env func(string) (string, bool)) []error {
	const source = "TELEMETRY_CPU_SOURCE"
	v, ok := env(source)
	if !ok || v == "" {
		return nil
	}
	if v != "host" && v != sourceHTTP && v != sourceNone {
		return []error{fmt.Errorf("%s: %q is none of host, http, none", source, v)}
	}
	if c.origin["host.enabled"] == originDefault {
		c.HostEnabled, c.origin["host.enabled"] = v == "host", "variable "+source
	}
	if v == sourceHTTP && c.origin["presets.cpu_power.source"] == originDefault {
		c.CPUSource, c.origin["presets.cpu_power.source"] = v, "variable "+source
	}
	return nil
}

// validatePull says what is wrong with the endpoints.
func (c *config) validatePull(bad func(key, format string, args ...any)) {
	for _, in := range []struct{ source, key, endpoint, endpointKey, variable string }{
		{c.CPUSource, "presets.cpu_power.source", c.PullAgent, "pull.agent", "TELEMETRY_CPU_HTTP_ENDPOINT"},
		{c.PowerSource, "presets.node_power.source", c.PullControl, "pull.controller", "NODE_POWER_HTTP_ENDPOINT"},
	} {
		if in.source == sourceHTTP && in.endpoint == "" {
			bad(in.key, "is http, and there is no endpoint; set %s, or %s", in.endpointKey, in.variable)
		}
	}
	seen := map[string]bool{}
	for _, n := range c.PullNodes {
		switch {
		case n == "." || n == ".." || strings.ContainsAny(n, "/ "):
			bad("pull.nodes", "%q is no name of a node", n)
		case seen[n]:
			bad("pull.nodes", "%s is there twice", n)
		}
		seen[n] = true
	}
	if len(c.PullNodes) > 1 && c.PullControl != "" && !strings.Contains(c.PullControl, "{node}") {
		bad("pull.controller", "there is no {node} in it, and pull.nodes has %d", len(c.PullNodes))
	}
	if c.PullHTTP != "" && c.PullAgent == "" && c.PullControl == "" {
		bad("pull.http", "there is no endpoint that it is for; set pull.agent or pull.controller")
	}
	if c.PullInterval < 100*time.Millisecond {
		bad("pull.interval", "%s: at least 100ms", c.PullInterval)
	}
	if c.PullTimeout < 100*time.Millisecond {
		bad("pull.timeout", "%s: at least 100ms", c.PullTimeout)
	}
}

// pulls are the endpoints that are asked: one question where both readers want the
// same.
func (c *config) pulls() []pull.Source {
	var out []pull.Source
	add := func(endpoint, node string, w pull.Want) {
		for i := range out {
			if out[i].Endpoint == endpoint && out[i].Node == node {
				out[i].Wants = append(out[i].Wants, w)
				return
			}
		}
		out = append(out, pull.Source{Endpoint: endpoint, Node: node, Interval: c.PullInterval, Timeout: c.PullTimeout, Wants: []pull.Want{w}, HTTP: c.PullHTTP})
	}
	if c.CPUSource == sourceHTTP {
		add(c.PullAgent, c.Node, pull.Want{Role: pull.Agent, Window: pull.AgentWindow})
	}
	if c.PowerSource == sourceHTTP {
		nodes := c.PullNodes
		if len(nodes) == 0 {
			nodes = []string{c.Node}
		}
		for _, n := range nodes {
			add(c.PullControl, n, pull.Want{Role: pull.Controller, Host: c.PowerScope == "host", Window: c.pullWindow()})
		}
	}
	return out
}

// checkFetched says what is wrong with the files that pages and documents are asked
// for by.
func (c *config) checkFetched() error {
	var errs []error
	try := func(key, what, file string) {
		if file == "" {
			return
		}
		if _, err := httpfile.New(file, nil); err != nil {
			errs = append(errs, here(fmt.Errorf("%s (%s): %s%w", key, c.origin[key], what, err)))
		}
	}
	try("pull.http", "", c.PullHTTP)
	for _, t := range c.Scrape {
		try("scrape", t.URL+": ", t.HTTP)
	}
	return errors.Join(errs...)
}

// newPuller makes what asks endpoints. It asks none before Run.
func (p *parts) newPuller(log *slog.Logger) *pull.Manager {
	channel := p.recv.Channel(pullChannel)
	m := pull.NewManager(pull.Options{
		Store: p.db, Sync: p.db.Sync,
		Watch: ingest.Watch{Gen: p.eng.Generation, Rules: p.eng.Touched, Grew: p.eng.Grew},
		Export: func(ctx context.Context, wire []byte) error {
			res, err := channel.Export(ctx, wire)
			if err == nil && res.Rejected > 0 {
				err = errors.New(res.Message)
			}
			return err
		},
		Clock: p.clk.Now, Agent: "wattloop/" + version, Legacy: p.legacyOn.Load,
		Log: log.With("part", "pull"), Registerer: p.reg,
	})
	m.Apply(p.c.pulls())
	return m
}

// polls are what the report says of the endpoints that are asked.
func (p *parts) polls() []api.Pull {
	out := []api.Pull{}
	for _, st := range p.puller.Status() {
		r := api.Pull{URL: st.URL, Role: string(st.Role), Node: st.Node, Quality: string(st.Quality), Scope: st.Scope,
			IntervalSeconds: st.Interval.Seconds(), LastPoll: known(st.LastPoll), Why: st.Why, Error: st.Err}
		switch {
		case r.LastPoll == nil:
			r.Quality = "unknown"
		case st.Err != "":
			r.Quality = "failed"
		case st.Quality == pull.Fresh:
			watts := api.Number(st.Watts)
			r.Watts = &watts
		}
		out = append(out, r)
	}
	return out
}

// printPulls is a table of them as of now, or nothing.
func printPulls(w io.Writer, all []api.Pull, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nENDPOINT\tROLE\tNODE\tSTATE\tASKED\tPOWER\tERROR")
	for _, r := range all {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.URL, r.Role, r.Node, r.Quality, agoText(r.LastPoll, now), valueText(r.Watts, "W"), orDash(cmp.Or(r.Error, r.Why)))
	}
	return tw.Flush()
}

// pullWindow is the longest interval of a counter that the controller's reader takes.
func (c *config) pullWindow() time.Duration { return cmp.Or(c.RateWindow, pull.AgentWindow) }

// pullOf is how the controller's reading of a node is.
func (p *parts) pullOf(node string) (pull.Status, bool) {
	for _, st := range p.puller.Status() {
		if st.Role == pull.Controller && st.Node == node {
			return st, true
		}
	}
	return pull.Status{}, false
}

// pullFailed is why the last poll for a node gave nothing that can be read.
func (p *parts) pullFailed(node string) string {
	st, ok := p.pullOf(node)
	if !ok {
		return "pull.nodes has no such node"
	}
	return st.Err
}

func (p *parts) pullWarming(node string) bool {
	st, _ := p.pullOf(node)
	return st.Quality == pull.Warming
}

// pullScope is what the last reading of a node is of.
func (p *parts) pullScope(node string) string {
	st, _ := p.pullOf(node)
	return st.Scope
}
