package ingest

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	native "github.com/prometheus/prometheus/model/histogram"
)

// walk is the work on one request. Everything in it is reused by the next one.
type walk struct {
	o      *Options
	naming naming
	cache  cache
	src    *origin // whom the request comes from

	n        uint64 // number of the request
	now      int64
	gate     gate
	tally    tally
	misspelt map[string]bool // what tellSpelling has told of
	messages int
	points   int

	// Where the walk is: the bytes of the resource and the scope, and their
	// entries once a first point has asked for them.
	resourceKey, scopeKey []byte
	re, lastResource      *entry[resource]
	se, lastScope         *entry[scope]
	me, lastMetric        *entry[metric]
	last                  *entry[stream]
	lastT                 int64 // of the resource's last point

	key            []byte // scratch
	counts, bounds []byte // scratch, of a histogram point
	diff           []byte // the same
	counted        int    // counts in it
	wide           []uint64
	float          native.FloatHistogram
	print          []byte
	seed           maphash.Seed
	buckets        int // of exponential histograms in this request
	pending        []point
	samples        []sample
	hists          []hist // of samples, which count them from 1
	exemplars      exemplars
	disorder       bool
	sums           accumulator
	savedTotals    []savedTotal
	savedPasts     []savedPast
	owes           bool // the ack waits for the journal of the running sums
	kept           bool // the request is in it
	infos          []*series
	querier        querier
	discarding     bool // the appender refuses out-of-order samples
	appended       int
	newest         int64 // of the samples appended
	newestAccepted int64 // of the points accepted
	gap            int64 // the least time since the sample before, over the series; 0 = unknown
	growth         Growth
	refusedSeries  int    // series that the limits kept out
	refusedWhy     reason // the last of them

	decisions *[]decision  // of the points so far; nil when they do not go onward stamped
	elsewhere func() error // takes the request where metrics are kept elsewhere; nil when nothing depends on it
	nobody    decision
}

func newWalk(o *Options, m *metrics) walk {
	return walk{
		o:      o,
		naming: newNaming(o),
		sums:   newAccumulator(o, m),
		growth: Growth{Watch: o.Watch},
		seed:   maphash.MakeSeed(),
		cache:  cache{sources: map[*origin]struct{}{}, series: make(map[uint64]*series), maxSeries: o.MaxSeries, epoch: 1},
	}
}

// maxScratch is how many samples the room for a request may hold when the next one
// begins.
const maxScratch = 1 << 17

// begin makes ready for a request.
func (w *walk) begin(src *origin) {
	w.n++
	w.src = src
	w.cache.sources[src] = struct{}{}
	w.now = w.o.Clock().UnixMilli()
	w.gate = newGate(w.o, w.now)
	w.tally.reset()
	w.messages, w.points = 0, 0
	w.lastResource = nil
	if cap(w.samples) > maxScratch {
		w.pending, w.samples = nil, nil
	}
	w.pending, w.samples = w.pending[:0], w.samples[:0]
	clear(w.hists)
	w.hists, w.buckets = w.hists[:0], 0
	w.exemplars.reset()
	w.disorder, w.appended, w.refusedSeries = false, 0, 0
	w.owes, w.kept = false, false
	w.savedTotals, w.savedPasts, w.infos = w.savedTotals[:0], w.savedPasts[:0], w.infos[:0]
	w.newest, w.newestAccepted, w.gap = math.MinInt64, math.MinInt64, 0
	w.cache.tidy(w.now)
	w.sums.tidy(w.now)
	w.cache.src, w.cache.strained = src, false
}

// undo takes back what a request that failed has left behind.
func (w *walk) undo() {
	for _, saved := range w.savedTotals {
		saved.s.total = saved.was
	}
	for i := range w.savedPasts {
		w.savedPasts[i].undo(&w.sums)
	}
	for _, s := range w.infos {
		s.wrote = nil
	}
}

// request walks an ExportMetricsServiceRequest.
func (w *walk) request(b []byte) error {
	f := fields{b: b}
	for f.next() {
		if f.num != 1 {
			continue
		}
		if f.typ != wireBytes {
			return undecodable("resource_metrics has the wrong wire type")
		}
		if err := w.more(); err != nil {
			return err
		}
		if err := w.resourceMetrics(f.data); err != nil {
			return err
		}
	}
	if f.broken {
		return undecodable("the request is cut short or malformed")
	}
	if w.messages > 10_000+64*w.points {
		return undecodable("%d messages for %d points: too many", w.messages, w.points)
	}
	return nil
}

// more counts one message more.
func (w *walk) more() error {
	if w.messages++; w.messages > maxMessages {
		return undecodable("more than %d messages in one request", maxMessages)
	}
	return nil
}

// joined is a message that should come once, put together from all its
// occurrences, as protobuf wants it.
type joined struct {
	b   []byte
	own bool // b is a copy
}

func (j *joined) add(b []byte) {
	switch {
	case j.b == nil:
		j.b = b
		return
	case !j.own:
		j.b, j.own = append(make([]byte, 0, 2*len(j.b)+len(b)), j.b...), true
	}
	j.b = append(j.b, b...)
}

// children finds the message in field 1 of b, which may come after what it
// describes, and hands each message of field 2 on.
func (w *walk) children(b []byte, what string, one *[]byte, each func([]byte) error) error {
	var first joined
	f := fields{b: b}
	for f.next() {
		if f.num <= 2 && f.typ != wireBytes {
			return undecodable("a field of %s has the wrong wire type", what)
		}
		if f.num == 1 {
			first.add(f.data)
		}
	}
	*one = first.b
	if f.broken {
		return undecodable("%s is cut short or malformed", what)
	}
	for f = (fields{b: b}); f.next(); {
		if f.num != 2 {
			continue
		}
		if err := w.more(); err != nil {
			return err
		}
		if err := each(f.data); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) resourceMetrics(b []byte) error {
	w.re, w.lastScope, w.lastT = nil, nil, math.MinInt64
	err := w.children(b, "resource_metrics", &w.resourceKey, w.scopeMetrics)
	if err != nil || w.re != nil {
		return err
	}
	n, err := check(msgResource, w.resourceKey, 3, "resource")
	w.messages += n
	return err
}

func (w *walk) scopeMetrics(b []byte) error {
	w.se, w.lastMetric = nil, nil
	err := w.children(b, "scope_metrics", &w.scopeKey, w.metric)
	if err != nil || w.se != nil {
		return err
	}
	n, err := check(msgScope, w.scopeKey, 4, "scope")
	w.messages += n
	return err
}

// check scans a resource or a scope and counts its messages. One that is not there
// is none.
func check(m message, b []byte, depth int, what string) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, invalid, err := scan(m, b, depth)
	if err == nil && invalid {
		err = undecodable("a text of a %s is not valid UTF-8", what)
	}
	return n, err
}

// metric reads one Metric: first what it says of itself, then its points.
func (w *walk) metric(b []byte) error {
	var h header
	var data joined
	f := fields{b: b}
	for f.next() {
		switch f.num {
		case 1, 2, 3, 5, 7, 9, 10, 11, 12:
			if f.typ != wireBytes {
				return undecodable("a field of a metric has the wrong wire type")
			}
		}
		if !h.take(&f, &data) && f.num == 12 {
			n, _, err := scan(msgKeyValue, f.data, 5)
			if w.messages += n; err != nil {
				return err
			}
		}
	}
	if f.broken {
		return undecodable("a metric is cut short or malformed")
	}
	if h.kind == 0 { // nothing was measured (C11)
		return nil
	}
	if err := w.more(); err != nil {
		return err
	}
	points, err := h.data(data.b)
	if err != nil || points == 0 {
		return err
	}
	return w.metricPoints(&h, data.b)
}

// metricPoints finds the metric in the cache and walks its points.
func (w *walk) metricPoints(h *header, data []byte) error {
	if err := w.resolve(h); err != nil {
		return err
	}
	m, r := &w.me.v, &w.re.v
	bad, what := r.bad, r.what
	if bad == fine {
		bad, what = m.bad, ""
	}
	w.last = nil
	for f := (fields{b: data}); f.next(); {
		if f.num != 1 {
			continue
		}
		if err := w.more(); err != nil {
			return err
		}
		w.points++
		w.decide()
		refused := w.tally.refused
		var err error
		switch {
		case w.points > maxPoints:
			w.tally.reject(pointsLimit, 1, m.name, "")
		case bad != fine:
			var n int
			n, _, err = scan(pointMessage(h.kind), f.data, 6)
			w.messages += n - 1
			w.tally.reject(bad, 1, m.name, what)
		case h.kind == kindHistogram:
			err = w.histogramPoint(f.data)
		case h.kind == kindExpHistogram:
			err = w.exponentialPoint(f.data)
		case h.kind == kindSummary:
			err = w.summaryPoint(f.data)
		default:
			err = w.numberPoint(f.data)
		}
		if err != nil {
			return err
		}
		if w.tally.refused > refused {
			w.decided().act = actDrop
		}
		if w.exemplars.point == w.points {
			w.keepExemplars()
		}
	}
	return nil
}

func pointMessage(k kind) message {
	switch k {
	case kindHistogram:
		return msgHistogramPoint
	case kindExpHistogram:
		return msgExpHistogramPoint
	case kindSummary:
		return msgSummaryPoint
	}
	return msgNumberPoint
}

// resolve finds the entries of the resource, the scope and the metric, and makes
// those that are missing. It runs for metrics with points only, so that empty
// messages fill no cache.
func (w *walk) resolve(h *header) error {
	c := &w.cache
	if w.re == nil {
		e := w.src.resources.find(w.lastResource, w.resourceKey)
		if e == nil {
			r, err := w.newResource(w.resourceKey)
			if err != nil {
				return err
			}
			e = w.src.resources.add(c, w.lastResource, w.resourceKey)
			e.v = r
		}
		w.re, w.lastResource = e, e
		w.messages += e.v.messages
	}
	if w.se == nil {
		scopes := &w.re.v.scopes
		e := scopes.find(w.lastScope, w.scopeKey)
		if e == nil {
			n, err := check(msgScope, w.scopeKey, 4, "scope")
			if err != nil {
				return err
			}
			e = scopes.add(c, w.lastScope, w.scopeKey)
			e.v.messages = n
		}
		w.se, w.lastScope = e, e
		w.messages += e.v.messages
	}
	w.key = append(w.key[:0], byte(h.kind), h.temporality, 0)
	if h.monotonic {
		w.key[2] = 1
	}
	w.key = binary.AppendUvarint(w.key, uint64(len(h.name)))
	w.key = append(append(w.key, h.name...), h.unit...)
	metrics := &w.se.v.metrics
	e := metrics.find(w.lastMetric, w.key)
	if e == nil {
		e = metrics.add(c, w.lastMetric, w.key)
		e.v = w.naming.newMetric(h)
		w.tellSpelling(&e.v)
	}
	w.me, w.lastMetric = e, e
	return nil
}
