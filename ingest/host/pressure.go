package host

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// pressure is how long tasks have waited for a resource
// (Documentation/accounting/psi.rst).
type pressure struct {
	files  attributes
	ledger *ledger

	resources []string
	failed    error
	errs      map[string]error
}

func (p *pressure) find() error {
	names, err := p.files.fs.ReadDir("pressure")
	p.resources, p.failed = nil, err
	for _, name := range []string{"cpu", "memory", "io", "irq"} {
		if slices.Contains(names, name) {
			p.resources = append(p.resources, name)
		}
	}
	return nil // a kernel without it is no fault
}

func (p *pressure) poll(b *batch, _ Boot) ([]string, error) {
	p.errs = map[string]error{}
	var failed []error
	for _, resource := range p.resources {
		text, err := p.files.of("pressure/" + resource).text()
		if err == nil {
			err = p.add(b, resource, text)
		}
		if err != nil {
			p.errs[resource] = err
			failed = append(failed, fmt.Errorf("host: pressure: %w", err))
		}
	}
	return nil, errors.Join(failed...)
}

func (p *pressure) add(b *batch, resource, text string) error {
	totals, err := totalsOf(text)
	if err != nil {
		return fmt.Errorf("pressure/%s: %w", resource, err)
	}
	for _, t := range totals {
		if resource == "cpu" && t.kind == "full" {
			continue // of a whole machine it means nothing, and the kernel writes 0
		}
		seconds := float64(t.microseconds) / 1e6
		start := p.ledger.since("pressure/"+resource+"/"+t.kind, seconds, b.now)
		b.count("system.pressure.time", start, seconds, "system.pressure.resource", resource, "system.pressure.kind", t.kind)
	}
	return nil
}

type stall struct {
	kind         string // some, full
	microseconds uint64
}

// totalsOf reads the lines of one resource: "some avg10=0.00 avg60=0.00
// avg300=0.00 total=0".
func totalsOf(text string) ([]stall, error) {
	var out []stall
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		last, ok := strings.CutPrefix(words[len(words)-1], "total=")
		n, err := strconv.ParseUint(last, 10, 64)
		if !ok || err != nil || words[0] != "some" && words[0] != "full" {
			return nil, fmt.Errorf("holds %.60q: %w", line, errNoNumber)
		}
		out = append(out, stall{words[0], n})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("is empty: %w", errNoNumber)
	}
	return out, nil
}

func (p *pressure) findings() []Finding {
	if len(p.resources) == 0 {
		reason := "the kernel counts no pressure: there is no folder pressure in the proc tree"
		if p.failed == nil {
			reason = "the folder pressure of the proc tree is empty"
		}
		return []Finding{absent(KindPressure, "pressure", reason, remedyPSI)}
	}
	var out []Finding
	for _, r := range p.resources {
		out = append(out, found(KindPressure, r, "pressure/"+r, p.errs[r]))
	}
	return out
}
