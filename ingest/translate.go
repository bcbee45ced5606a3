package ingest

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/otlptranslator"
)

// kind is what a metric holds; the number is its field in Metric.
type kind uint8

const (
	kindGauge        kind = 5
	kindSum          kind = 7
	kindHistogram    kind = 9
	kindExpHistogram kind = 10
	kindSummary      kind = 11
)

// Values of AggregationTemporality.
const (
	temporalityDelta      = 1
	temporalityCumulative = 2
)

// header is what a metric says of all its points.
type header struct {
	kind        kind
	temporality uint8
	monotonic   bool
	name, unit  []byte
}

// metric is a header, checked and translated.
type metric struct {
	streams     level[stream]
	name        string // as the sender wrote it
	unit        string
	stored      string // without the suffixes of a histogram
	kind        kind
	temporality uint8
	monotonic   bool
	bad         reason
}

// same reports whether both describe one metric, whatever sent them.
func (m *metric) same(o *metric) bool {
	return m == o || m.name == o.name && m.unit == o.unit && m.kind == o.kind &&
		m.temporality == o.temporality && m.monotonic == o.monotonic
}

// walk is the work on one request. Everything in it is reused by the next one.
type walk struct {
	o      *Options
	naming naming
	cache  cache

	n        uint64 // number of the request
	now      int64
	gate     gate
	tally    tally
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
	pending        []point
	samples        []sample
	disorder       bool
	savedSums      []savedSum
	savedDeltas    []savedDeltas
	infos          []*series
	querier        querier
	discarding     bool // the appender refuses out-of-order samples
	appended       int
	newest         int64 // of the samples appended
	newestAccepted int64 // of the points accepted
	marks          []uint64
}

func newWalk(o *Options) walk {
	return walk{
		o:      o,
		naming: newNaming(o),
		cache:  cache{series: make(map[uint64]*series), maxSeries: o.MaxSeries, epoch: 1},
	}
}

// begin makes ready for a request.
func (w *walk) begin() {
	w.n++
	w.now = w.o.Clock().UnixMilli()
	w.gate = newGate(w.o, w.now)
	w.tally.reset()
	w.messages, w.points = 0, 0
	w.lastResource = nil
	w.pending, w.samples = w.pending[:0], w.samples[:0]
	w.disorder, w.appended = false, 0
	w.savedSums, w.savedDeltas, w.infos = w.savedSums[:0], w.savedDeltas[:0], w.infos[:0]
	w.newest, w.newestAccepted = math.MinInt64, math.MinInt64
	w.cache.tidy(w.now)
}

// undo takes back what a request that failed has left behind.
func (w *walk) undo() {
	for _, saved := range w.savedSums {
		*saved.s.sum = saved.was
	}
	for _, saved := range w.savedDeltas {
		*saved.st.seen = saved.was
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

// merge joins the occurrences of a field that should come once, as protobuf
// wants it.
func merge(old, b []byte) []byte {
	if old == nil {
		return b
	}
	return append(old[:len(old):len(old)], b...)
}

// children finds the message in field 1 of b, which may come after what it
// describes, and hands each message of field 2 on.
func (w *walk) children(b []byte, what string, one *[]byte, each func([]byte) error) error {
	*one = nil
	f := fields{b: b}
	for f.next() {
		if f.num <= 2 && f.typ != wireBytes {
			return undecodable("a field of %s has the wrong wire type", what)
		}
		if f.num == 1 {
			*one = merge(*one, f.data)
		}
	}
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
	return w.check(msgResource, w.resourceKey, 3, "resource")
}

func (w *walk) scopeMetrics(b []byte) error {
	w.se, w.lastMetric = nil, nil
	err := w.children(b, "scope_metrics", &w.scopeKey, w.metric)
	if err != nil || w.se != nil {
		return err
	}
	return w.check(msgScope, w.scopeKey, 4, "scope")
}

// check scans a resource or a scope.
func (w *walk) check(m message, b []byte, depth int, what string) error {
	n, invalid, err := scan(m, b, depth)
	w.messages += n
	if err == nil && invalid {
		err = undecodable("a text of a %s is not valid UTF-8", what)
	}
	return err
}

// metric reads one Metric: first what it says of itself, then its points.
func (w *walk) metric(b []byte) error {
	var h header
	var data []byte
	f := fields{b: b}
	for f.next() {
		switch f.num {
		case 1, 2, 3, 5, 7, 9, 10, 11, 12:
			if f.typ != wireBytes {
				return undecodable("a field of a metric has the wrong wire type")
			}
		}
		switch f.num {
		case 1:
			h.name = f.data
		case 3:
			h.unit = f.data
		case 5, 7, 9, 10, 11:
			if kind(f.num) != h.kind {
				h.kind, data = kind(f.num), nil
			}
			data = merge(data, f.data)
		case 12:
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
	points, err := h.data(data)
	if err != nil || points == 0 {
		return err
	}
	return w.metricPoints(&h, data)
}

// data reads the fields beside the points, and counts the points.
func (h *header) data(b []byte) (points int, err error) {
	f := fields{b: b}
	for f.next() {
		switch {
		case f.num == 1 && f.typ == wireBytes:
			points++
		case f.num == 2 && f.typ == wireVarint:
			h.temporality = uint8(min(f.val, 255))
		case f.num == 3 && f.typ == wireVarint:
			h.monotonic = f.val != 0
		case f.num <= 3:
			return 0, undecodable("a field of a metric's data has the wrong wire type")
		}
	}
	if f.broken {
		return 0, undecodable("a metric's data is cut short or malformed")
	}
	return points, nil
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
		default:
			err = w.numberPoint(f.data)
		}
		if err != nil {
			return err
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
		e := c.resources.find(w.lastResource, w.resourceKey)
		if e == nil {
			r, err := w.newResource(w.resourceKey)
			if err != nil {
				return err
			}
			e = c.resources.add(c, w.lastResource, w.resourceKey)
			e.v = r
		}
		w.re, w.lastResource = e, e
	}
	if w.se == nil {
		scopes := &w.re.v.scopes
		e := scopes.find(w.lastScope, w.scopeKey)
		if e == nil {
			if err := w.check(msgScope, w.scopeKey, 4, "scope"); err != nil {
				return err
			}
			e = scopes.add(c, w.lastScope, w.scopeKey)
		}
		w.se, w.lastScope = e, e
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
	}
	w.me, w.lastMetric = e, e
	return nil
}

// newMetric translates a header that is not in the cache.
func (n *naming) newMetric(h *header) metric {
	m := metric{
		name: string(h.name), unit: string(h.unit),
		kind: h.kind, temporality: h.temporality, monotonic: h.monotonic,
	}
	room := maxMetricName
	t := otlptranslator.Metric{Name: m.name, Unit: m.unit}
	switch {
	case h.kind == kindExpHistogram:
		m.bad = expHistogram
		return m
	case h.kind == kindSummary:
		m.bad = summary
		return m
	case !utf8.Valid(h.name) || !utf8.Valid(h.unit):
		m.bad = invalidUTF8
		return m
	case !plain(m.name) || !plain(m.unit):
		m.bad = badText
		return m
	case h.kind != kindGauge && h.temporality != temporalityDelta && h.temporality != temporalityCumulative:
		m.bad = badTemporality
		return m
	case h.kind == kindGauge:
		t.Type = otlptranslator.MetricTypeGauge
	case h.kind == kindHistogram:
		t.Type = otlptranslator.MetricTypeHistogram
		room -= len("_bucket")
	case h.monotonic:
		t.Type = otlptranslator.MetricTypeMonotonicCounter
	default:
		t.Type = otlptranslator.MetricTypeNonMonotonicCounter
	}
	stored, err := n.metric.Build(t)
	switch {
	case err != nil || len(stored) > room:
		m.bad = badName
	case reserved(stored):
		m.bad = reservedName
	}
	m.stored = stored
	return m
}

// reserved reports whether only wattloop itself may write a name (decisions.md
// X26).
func reserved(name string) bool {
	return name == "up" || name == targetInfoName ||
		strings.HasPrefix(name, "wattloop_") || strings.HasPrefix(name, "joulie_twin_") ||
		strings.HasPrefix(name, "scrape_") || strings.HasPrefix(name, "ALERTS")
}
