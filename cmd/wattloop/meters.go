package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/wattloop/wattloop/api"
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
	fmt.Fprintf(w, "meters of this machine: %s", orDash(strings.Join(read, ", ")))
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
