package ingest

import (
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
	stored      string // without the suffixes of a histogram or a summary
	kind        kind
	temporality uint8
	monotonic   bool
	power       bool // a gauge of what something draws, which is not below zero
	bad         reason
}

// same reports whether both describe one metric, whatever sent them.
func (m *metric) same(o *metric) bool {
	return m == o || m.name == o.name && m.unit == o.unit && m.kind == o.kind &&
		m.temporality == o.temporality && m.monotonic == o.monotonic
}

// take takes a field of a Metric that says something of all its points, or a piece
// of their data, and reports whether it is one. Of the kinds the last that is there
// counts.
func (h *header) take(f *fields, data *joined) bool {
	switch f.num {
	case 1:
		h.name = f.data
	case 3:
		h.unit = f.data
	case 5, 7, 9, 10, 11:
		if kind(f.num) != h.kind {
			h.kind, *data = kind(f.num), joined{}
		}
		data.add(f.data)
	default:
		return false
	}
	return true
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

// newMetric translates a header that is not in the cache.
func (n *naming) newMetric(h *header) metric {
	m := metric{
		name: string(h.name), unit: string(h.unit),
		kind: h.kind, temporality: h.temporality, monotonic: h.monotonic,
	}
	m.power = m.kind == kindGauge && isPower(m.name)
	room := maxMetricName
	t := otlptranslator.Metric{Name: m.name, Unit: m.unit}
	switch {
	case !utf8.Valid(h.name) || !utf8.Valid(h.unit):
		m.bad = invalidUTF8
		return m
	case !plain(m.name) || !plain(m.unit):
		m.bad = badText
		return m
	case h.kind != kindGauge && h.kind != kindSummary && h.temporality != temporalityDelta && h.temporality != temporalityCumulative:
		m.bad = badTemporality
		return m
	case h.kind == kindGauge:
		t.Type = otlptranslator.MetricTypeGauge
	case h.kind == kindHistogram:
		t.Type = otlptranslator.MetricTypeHistogram
		room -= len("_bucket")
	case h.kind == kindExpHistogram:
		t.Type = otlptranslator.MetricTypeExponentialHistogram
	case h.kind == kindSummary:
		t.Type = otlptranslator.MetricTypeSummary
		room -= len("_count")
	case h.monotonic:
		t.Type = otlptranslator.MetricTypeMonotonicCounter
	default:
		t.Type = otlptranslator.MetricTypeNonMonotonicCounter
	}
	stored, err := n.metric.Build(t)
	switch {
	case err != nil || stored == "" || len(stored) > room:
		m.bad = badName
	case reserved(stored), room < maxMetricName && reserved(stored+"_count"): // as its series are called
		m.bad = reservedName
	}
	m.stored = stored
	return m
}

// isPower reports whether a metric is a power that the presets read.
func isPower(name string) bool {
	return name == "hw.power" || name == "hw.host.power" || strings.HasPrefix(name, "joulie.") && strings.HasSuffix(name, ".power")
}

// reserved reports whether an OTLP payload may not write a name.
func reserved(name string) bool {
	return OwnName(name) || strings.Map(ascii, name) == targetInfoName
}

// OwnName reports whether only wattloop itself may write a name (decisions.md
// X26), also once it has been translated to one of letters and underscores.
func OwnName(name string) bool {
	name = strings.Map(ascii, name)
	return name == "up" ||
		strings.HasPrefix(name, "wattloop_") || strings.HasPrefix(name, "joulie_twin_") ||
		strings.HasPrefix(name, "scrape_") || strings.HasPrefix(name, "ALERTS")
}
