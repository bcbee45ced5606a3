package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/api"
	semconv "github.com/wattloop/wattloop/presets/names"
)

// meters are the host source's as its newest poll found them.
func (p *parts) meters() []api.Meter {
	if p.host == nil {
		return nil
	}
	var out []api.Meter
	for _, f := range p.host.Findings() {
		out = append(out, api.Meter(f))
	}
	return out
}

// unread are the series that the energy counters would have which are there and
// cannot be read, as the store spells them.
func (p *parts) unread() []labels.Labels {
	if p.host == nil {
		return nil
	}
	strategy := semconv.Strategy(p.c.Naming)
	var out []labels.Labels
	for _, m := range p.host.Unread() {
		metric := "hw.energy"
		attrs := map[string]string{"k8s.node.name": p.host.Node, "hw.type": m.Type, "hw.id": m.ID, "hw.parent": m.Parent}
		if m.Type == "" {
			metric = "hw.host.energy"
		}
		found, _ := semconv.Lookup(metric)
		b := labels.NewBuilder(labels.EmptyLabels()).Set("__name__", found.Stored(strategy))
		for _, a := range semconv.Attributes() {
			b.Set(a.Stored(strategy), attrs[a.Name]) // an empty value is no label
		}
		out = append(out, b.Labels())
	}
	return out
}

// printMeters says in one line what is read of this machine, and below it what
// is there and cannot be read, with what to do.
func printMeters(w io.Writer, ms []api.Meter) {
	if len(ms) == 0 {
		return
	}
	counts := map[string]int{}
	var kinds, none []string
	for _, m := range ms {
		switch _, seen := counts[m.Kind]; {
		case m.Found && m.Readable && !seen:
			kinds = append(kinds, m.Kind)
			fallthrough
		case m.Found && m.Readable:
			counts[m.Kind]++
		case !m.Found:
			none = append(none, m.Kind)
		}
	}
	var read []string
	for _, k := range kinds {
		read = append(read, fmt.Sprintf("%s %d", k, counts[k]))
	}
	fmt.Fprintf(w, "meters of this machine: %s", cmp.Or(strings.Join(read, ", "), "none"))
	if len(none) > 0 {
		fmt.Fprintf(w, "; none of: %s", strings.Join(none, ", "))
	}
	fmt.Fprintln(w, "; wattloop check --hardware says more")
	for _, m := range ms {
		if m.Found && !m.Readable {
			fmt.Fprintf(w, "  %s cannot be read: %s\n", strings.TrimSpace(m.Kind+" "+m.Name), whatToDo(m.Reason, m.Remedy))
		}
	}
	fmt.Fprintln(w)
}

// whatToDo is a reason and the remedy behind it.
func whatToDo(reason, remedy string) string {
	if reason == "" || remedy == "" {
		return reason + remedy
	}
	return reason + "; " + remedy
}
