package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/doubt"
	semconv "github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
)

// doubtEvery is how often the store is looked at for what no rule can see: a
// handful of queries.
const doubtEvery = 15 * time.Second

// doubts are what makes readings wrong, as the newest look found it.
type doubts struct {
	kepler atomic.Bool // node_power is read from it
	found  atomic.Pointer[[]doubt.Doubt]
}

// readFrom takes what node power is read from under a set of rules.
func (d *doubts) readFrom(set *rules.Set) {
	r := set.Reading("node_power")
	d.kepler.Store(r != nil && strings.Contains(r.Query, "kepler_node_"))
}

func (d *doubts) all() []doubt.Doubt {
	if found := d.found.Load(); found != nil {
		return *found
	}
	return nil
}

var doubtDesc = prometheus.NewDesc("wattloop_reading_doubts", "What is known to make the readings of a node wrong, by kind; the status says which.", []string{"kind"}, nil)

// Describe and Collect are a prometheus.Collector's.
func (d *doubts) Describe(ch chan<- *prometheus.Desc) { ch <- doubtDesc }

func (d *doubts) Collect(ch chan<- prometheus.Metric) {
	count := map[string]float64{doubt.Mirrored: 0, doubt.NoGPUEnergy: 0}
	for _, x := range d.all() {
		count[x.Kind]++
	}
	for kind, n := range count {
		ch <- prometheus.MustNewConstMetric(doubtDesc, prometheus.GaugeValue, n, kind)
	}
}

// doubt looks again and again until ctx ends, and says what has come and what is
// over, once.
func (p *parts) doubt(ctx context.Context, tick <-chan time.Time) error {
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		found, err := p.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, store.ErrClosed) && !errors.Is(err, store.ErrBeside) && err.Error() != failing:
			failing = err.Error()
			p.log.Warn("the stored counters could not be looked at for doubts", "err", err)
		}
		if err != nil {
			continue
		}
		failing = ""
		p.tellDoubts(p.doubts.all(), found)
		p.doubts.found.Store(&found)
	}
}

func (p *parts) look(ctx context.Context) ([]doubt.Doubt, error) {
	l := doubt.Looker{
		Naming: semconv.Strategy(p.c.Naming), Kepler: p.doubts.kepler.Load(),
		Query: func(ctx context.Context, expr string, ts int64) ([]doubt.Sample, error) {
			got, err := p.db.Instant(ctx, expr, ts)
			out := make([]doubt.Sample, len(got))
			for i, s := range got {
				out[i] = doubt.Sample{Metric: s.Metric, V: s.V}
			}
			return out, err
		},
	}
	return l.Look(ctx, p.clk.Now().UnixMilli())
}

func (p *parts) tellDoubts(before, now []doubt.Doubt) {
	had := map[doubt.Doubt]bool{}
	for _, d := range before {
		had[d] = true
	}
	for _, d := range now {
		if !had[d] {
			p.log.Warn("readings of a node are wrong", "node", d.Node, "kind", d.Kind, "why", d.What)
		}
		delete(had, d)
	}
	for d := range had {
		p.log.Info("readings of a node are no longer in doubt", "node", d.Node, "kind", d.Kind)
	}
}

// doubtFacts are the doubts as the report has them.
func (p *parts) doubtFacts() []api.Doubt {
	out := []api.Doubt{}
	for _, d := range p.doubts.all() {
		out = append(out, api.Doubt(d))
	}
	return out
}

func printDoubts(w io.Writer, all []api.Doubt) {
	for _, d := range all {
		fmt.Fprintf(w, "in doubt: node %s: %s (%s)\n", d.Node, d.What, d.Kind)
	}
	if len(all) > 0 {
		fmt.Fprintln(w)
	}
}
