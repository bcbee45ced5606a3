package engine

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Transcript prints what changed between reports, one fact a line: time since
// the start, kind, subject, value. Lines of one instant are sorted, a fact is
// printed only when it changes, and "gone" when it ends. docs/transcript.md
// describes it.
type Transcript struct {
	W     io.Writer
	Start int64 // Unix milliseconds that count as zero

	last map[string]string
}

// Observe prints what rep says that the last report did not.
func (t *Transcript) Observe(rep *Report) error {
	now := transcriptFacts(rep)
	var lines []string
	for subject, v := range now {
		if t.last[subject] != v {
			lines = append(lines, subject+"  "+v)
		}
	}
	for subject := range t.last {
		if _, ok := now[subject]; !ok {
			lines = append(lines, subject+"  gone")
		}
	}
	t.last = now
	slices.Sort(lines)
	at := time.Duration(rep.TS-t.Start) * time.Millisecond
	for _, l := range lines {
		if _, err := fmt.Fprintf(t.W, "%-9s %s\n", at, l); err != nil {
			return err
		}
	}
	return nil
}

// transcriptFacts maps "kind  subject" to a value as printed. A rule without a
// key is no fact: what would be printed of it hangs on no sample.
func transcriptFacts(rep *Report) map[string]string {
	facts := map[string]string{}
	for _, r := range rep.Readings {
		if r.Keyless {
			continue
		}
		facts["reading  "+r.Name+r.Key.String()] = readingText(r)
	}
	for _, r := range rep.Rules {
		if r.LeftOut != "" {
			facts["reading  "+r.Name] = "left out: " + r.LeftOut
		}
	}
	for _, c := range rep.Controls {
		if c.Keyless {
			continue
		}
		v := string(c.Phase)
		if c.Phase.asks() {
			v += " " + number(c.Value)
		}
		facts["control  "+c.Name+c.Key.String()] = v
	}
	for _, o := range rep.Outcomes {
		v := fmt.Sprintf("desired %s applied %s %s", number(o.Desired), number(o.Applied), o.Result)
		if o.Device == "" {
			v = fmt.Sprintf("desired %s %s", number(o.Desired), o.Result)
		}
		if o.Reason != "" {
			v += " (" + o.Reason + ")"
		}
		facts[strings.TrimSpace("outcome  "+o.Control+o.Key+" "+o.Name)] = v
	}
	for _, d := range rep.Devices {
		if d.Known {
			facts["device   "+d.Name] = withUnit(d.Current, d.Unit)
		}
	}
	return facts
}

// readingText is the value of a reading, if it has one, and how far it can be
// trusted.
func readingText(r *ReadingReport) string {
	v := string(r.Quality)
	if r.Valid {
		v = withUnit(r.Value, r.Unit) + " " + v
	}
	if r.Partial {
		v += " partial"
	}
	if r.Err != "" {
		v += " error: " + r.Err
	}
	return v
}

// withUnit leaves out the unit of what has none.
func withUnit(v float64, unit string) string {
	if unit == "" || unit == "1" {
		return number(v)
	}
	return number(v) + " " + unit
}

// number prints four significant digits and no exponent: enough to see a watt,
// few enough that noise does not fill the page.
func number(v float64) string {
	s := strconv.FormatFloat(v+0, 'g', 4, 64) // + 0: no -0
	if strings.Contains(s, "e") {
		v, _ = strconv.ParseFloat(s, 64)
		s = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return s
}
