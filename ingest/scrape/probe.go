package scrape

import (
	"context"
	"time"
)

// Probed is what one scrape of a target would give.
type Probed struct {
	Samples int           `json:"samples"` // on the page
	Stored  int           `json:"stored"`  // that would be
	Not     []ProbedCount `json:"not_stored"`
	Err     string        `json:"error,omitempty"` // why nothing would be
}

// ProbedCount are the samples that would not be stored for one reason.
type ProbedCount struct {
	Reason  string `json:"reason"` // as in wattloop_scrape_samples_total
	Why     string `json:"why"`
	Samples int    `json:"samples"`
	Example string `json:"example"`
}

// Probe reads the page of a target once, as of now, and stores nothing.
func Probe(ctx context.Context, t Target, agent string, now time.Time) Probed {
	t = t.withDefaults()
	page := newPage(&t, &Options{Agent: agent})
	defer page.Close()
	body, contentType, err := page.Get(ctx)
	at := now.UnixMilli()
	r := round{at: at, err: err, oldest: at - defaultOutOfOrder.Milliseconds(), youngest: at + ahead.Milliseconds()}
	newBook(t.Own()).read(&r, body, contentType, t.SampleLimit)
	out := Probed{Samples: r.total, Not: []ProbedCount{}}
	if r.err != nil {
		out.Err = r.err.Error()
		return out
	}
	out.Stored = len(r.samples)
	for why := fine + 1; why < numReasons; why++ {
		if n := r.not[why]; n > 0 {
			out.Not = append(out.Not, ProbedCount{reasonWords[why].name, reasonWords[why].text, n, r.example[why]})
		}
	}
	return out
}
