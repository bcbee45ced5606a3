package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/internal/fetch"
)

// SeriesName is the series of the readings, in watts. Its labels are
// k8s_node_name, role and scope.
const SeriesName = "wattloop_input_power_watts"

// output is the series of one reader.
type output struct {
	wants  Want
	reader Reader
	lines  map[string]*line // by scope

	mu     sync.Mutex
	status Status
}

// line is a series with one scope.
type line struct {
	labels labels.Labels
	ref    storage.SeriesRef
	touch  *ingest.Touch
	live   bool
}

// poll asks one endpoint for one node.
type poll struct {
	o       *Options
	m       *Manager
	source  Source
	page    *fetch.Page
	growth  ingest.Growth
	outputs []*output
	said    string // what the log has of the last poll that was not stored
}

func newPoll(m *Manager, s Source) *poll {
	address := expand(s.Endpoint, s.Node)
	p := &poll{o: &m.o, m: m, source: s, page: newPage(address, s.HTTP, m.o.Agent, s.Timeout), growth: ingest.Growth{Watch: m.o.Watch}}
	for _, w := range s.Wants {
		p.outputs = append(p.outputs, &output{
			wants: w, reader: Reader{Role: w.Role, Host: w.Host, Window: w.Window}, lines: map[string]*line{},
			status: Status{Role: w.Role, Node: s.Node, URL: address, Interval: s.Interval},
		})
	}
	return p
}

// run polls at once and then at every interval, until ctx ends.
func (p *poll) run(ctx context.Context) {
	defer p.page.Close()
	ticker := time.NewTicker(p.source.Interval)
	defer ticker.Stop()
	for {
		p.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once asks, and stores what is in the answer: its metrics, and each reading. Of
// a failure nothing is stored but the end of the readings before.
func (p *poll) once(ctx context.Context) {
	body, _, err := p.page.Get(ctx)
	if ctx.Err() != nil {
		return
	}
	var doc Document
	if err == nil {
		doc, err = p.document(body)
	}
	at := p.o.Clock()
	if err == nil {
		p.keep(ctx, doc)
	}
	for _, out := range p.outputs {
		r, failure := Reading{}, err
		if failure == nil {
			r, failure = out.reader.Read(doc)
		}
		failure = errors.Join(failure, p.store(ctx, out, r, failure, at))
		if ctx.Err() == nil {
			p.tell(out, r, failure, at)
		}
	}
}

// document reads an answer. The legacy form is warned of once.
func (p *poll) document(body []byte) (Document, error) {
	doc, err := Parse(body, p.source.Node)
	if !doc.Legacy {
		return doc, err
	}
	if !p.o.Legacy() {
		return doc, errors.New("the answer has no resourceMetrics: it is the legacy JSON, or none, and legacy_json is false")
	}
	p.m.legacy.Do(func() {
		p.o.Log.Warn("the legacy JSON is deprecated and goes with version 1.0; have the endpoint answer with OTLP JSON", "endpoint", p.page.URL)
	})
	return doc, err
}

// keep stores the document's own metrics. That some are not taken is no failure
// of the reading: a simulator's clock may be far from ours.
func (p *poll) keep(ctx context.Context, doc Document) {
	if doc.Metrics.DataPointCount() == 0 {
		return
	}
	wire, err := marshal(doc.Metrics)
	if err == nil {
		err = p.o.Export(ctx, wire)
	}
	said := ""
	if err != nil {
		said = "some"
	}
	if said != p.said && ctx.Err() == nil {
		if err != nil {
			p.o.Log.Warn("metrics of a document are not stored", "endpoint", p.page.URL, "err", err)
		} else {
			p.o.Log.Info("the metrics of its documents are stored again", "endpoint", p.page.URL)
		}
		p.said = said
	}
}

func marshal(md pmetric.Metrics) ([]byte, error) {
	return pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
}

// store appends a reading. One that is not fresh ends the series, so that no value
// of an earlier poll goes on; an unchanged document adds nothing to it, and it
// grows old.
func (p *poll) store(ctx context.Context, out *output, r Reading, failure error, at time.Time) error {
	if failure == nil && r.Quality == Unchanged {
		return nil
	}
	fresh := failure == nil && r.Quality == Fresh
	if fresh && out.lines[r.Scope] == nil {
		out.lines[r.Scope] = &line{labels: labels.FromStrings(
			"__name__", SeriesName, "k8s_node_name", p.source.Node, "role", string(out.wants.Role), "scope", r.Scope)}
	}
	values := map[*line]float64{}
	for scope, l := range out.lines {
		switch {
		case fresh && scope == r.Scope:
			values[l] = r.Watts
		case l.live:
			values[l] = math.Float64frombits(value.StaleNaN)
		}
	}
	if len(values) == 0 {
		return nil
	}
	if err := p.append(ctx, values, at.UnixMilli()); err != nil {
		return fmt.Errorf("the reading is not stored: %w", err)
	}
	return nil
}

func (p *poll) append(ctx context.Context, values map[*line]float64, ts int64) error {
	app := p.o.Store.Appender(ctx)
	for l, v := range values {
		ref, err := app.Append(l.ref, l.labels, ts, v)
		if err != nil {
			return errors.Join(err, app.Rollback())
		}
		l.ref = ref
	}
	if err := app.Commit(); err != nil {
		return err
	}
	watched := p.growth.Begin()
	for l, v := range values {
		l.live = !math.IsNaN(v)
		if watched {
			p.growth.Add(&l.touch, l.labels)
		}
	}
	if watched {
		p.growth.Tell(ts)
	}
	if p.o.Sync == nil {
		return nil
	}
	return p.o.Sync(ctx)
}

// end marks the ends of the series of an endpoint that is asked no more.
func (p *poll) end(ctx context.Context) {
	for _, out := range p.outputs {
		if err := p.store(ctx, out, Reading{Quality: Missing}, nil, p.o.Clock()); err != nil {
			p.o.Log.Warn("pull", "endpoint", p.page.URL, "err", err)
		}
	}
}

// tell keeps what is known of a reader, and logs what has changed of it.
func (p *poll) tell(out *output, r Reading, failure error, at time.Time) {
	now := Status{
		Role: out.wants.Role, Node: p.source.Node, URL: p.page.URL, Interval: p.source.Interval,
		LastPoll: at, Quality: r.Quality, Why: r.Why, Scope: r.Scope, Watts: r.Watts,
	}
	result := string(r.Quality)
	if failure != nil {
		now.Err, now.Quality, now.Why, result = failure.Error(), "", "", "error"
	}
	p.m.polls.WithLabelValues(string(now.Role), now.Node, result).Inc()
	out.mu.Lock()
	was := out.status
	out.status = now
	out.mu.Unlock()
	if r.Quality == Unchanged && failure == nil || was.Quality == Unchanged && was.Err == "" && !was.LastPoll.IsZero() && r.Quality == Fresh {
		return
	}
	log := p.o.Log.With("role", string(now.Role), "node", now.Node, "endpoint", p.page.URL)
	if was.Quality == now.Quality && (was.Err == "") == (now.Err == "") && !was.LastPoll.IsZero() {
		return
	}
	p.announce(log, now)
}

func (p *poll) announce(log *slog.Logger, now Status) {
	switch {
	case now.Err != "":
		log.Warn("no reading over HTTP", "err", now.Err)
	case now.Quality == Fresh:
		log.Info("a reading over HTTP", "watts", now.Watts, "scope", now.Scope)
	case now.Quality == Warming:
		log.Info("no reading over HTTP yet", "why", now.Why)
	default:
		log.Warn("no reading over HTTP", "why", now.Why)
	}
}
