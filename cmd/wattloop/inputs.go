package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/twin"
)

// tellInputs logs, for each input of Joulie's controller, where it comes from and
// its query as the rule's words (S0-170, S0-171): at the start, and after a reload
// what has changed. An input that is off has no line. attributes is the setting,
// which is reloaded live.
func (p *parts) tellInputs(set *rules.Set, attributes string) {
	if text := p.c.unusedAddress(os.Getenv(prometheusAddress)); text != "" && p.inputs == nil {
		p.log.Info(text)
	}
	now := map[string]string{}
	for _, in := range twin.Inputs() {
		r := set.Reading(in.Reading)
		if r == nil {
			continue
		}
		line, query := fmt.Sprintf("input %s: %s", in.Title, p.c.inputLine(r, attributes)), r.Explain().Queries[0].Words
		if now[in.Name] = line + query; p.inputs[in.Name] == now[in.Name] {
			continue
		}
		if preset, _ := presetOf(r); preset == sourceNone {
			p.log.Info(line)
			continue
		}
		p.log.Info(line, "query", query)
		if r.Note != "" {
			p.log.Info(fmt.Sprintf("input %s: %s", in.Title, r.Note))
		}
	}
	p.inputs = now
}

// inputLine is all that decides what an input reads, but for the query.
func (c *config) inputLine(r *rules.Reading, attributes string) string {
	preset, scope := presetOf(r)
	window := "-" // the query has no rate
	for _, f := range r.Explain().Params {
		if f.Name == "rate_window" {
			window = f.Value
		}
	}
	var forms []string
	infos := false
	for _, q := range r.Explain().Queries {
		if q.Form != "" {
			forms = append(forms, q.Form)
		}
		infos = infos || strings.Contains(q.Expr, "target_info")
	}
	where := "-"
	switch {
	case len(forms) > 1:
		where = "auto (" + strings.Join(forms, ", then ") + ")"
	case preset == "otel":
		where = attributes
	case infos:
		where = "labels and target_info"
	}
	switch preset {
	case sourceHTTP:
		longest := c.pullWindow()
		return fmt.Sprintf("source http, address %s, scope %s, window %s", c.PullControl, scope, dur(&longest))
	case sourceNone:
		return "source none; node_power has no answer"
	}
	return fmt.Sprintf("source store, address %s, preset %s, scope %s, naming %s, attributes %s, window %s, rate %s",
		c.address(), preset, scope, c.Naming, where, window, r.Rate)
}

// noScope is the scope of a reading that has none.
const noScope = "-"

// presetOf is the preset that a reading comes from, own for a user's, and its scope.
func presetOf(r *rules.Reading) (preset, scope string) {
	if r.Variant == "" {
		if name, ok := strings.CutPrefix(r.File, "presets/"); ok {
			preset, _, _ = strings.Cut(name, "/")
			return preset, noScope
		}
		return "own", noScope
	}
	preset, host := strings.CutSuffix(r.Variant, "-host")
	if host {
		return preset, "host"
	}
	return preset, "components"
}
