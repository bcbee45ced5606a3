package pull

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Role is whose reading is worked out of a document.
type Role string

// The two readers of the format.
const (
	Agent      Role = "agent"      // the CPU packages
	Controller Role = "controller" // the CPU packages and GPUs, or the whole host
)

// AgentWindow is the longest interval of an energy counter that an agent reads.
const AgentWindow = 5 * time.Minute

// The words of a reading's scope.
const (
	ScopeComponents      = "components"
	ScopeHost            = "host"
	ScopeProducerDefined = "producer-defined" // of the legacy JSON
)

// Reader works readings out of the documents of one node, one after another. It
// reads no clock: all times are the producer's. It is not safe for concurrent use.
type Reader struct {
	Role Role
	// Host makes a controller read the whole host's meter instead of the
	// components.
	Host bool
	// Window is the longest interval between two points of a counter that gives a
	// power; 0 means 5 minutes.
	Window time.Duration

	energy map[string]*counter // by series
	newest uint64              // of the points that the last reading was of
}

// Quality says what became of a document.
type Quality string

// A document gives a reading, or none and says why.
const (
	Fresh     Quality = "fresh"
	Unchanged Quality = "unchanged" // no point is newer than those of the document before
	Warming   Quality = "warming"   // a component has a counter without a rate, and no gauge
	Missing   Quality = "missing"   // nothing that is asked for is in it
)

// Reading is the power of a node in watts. Watts is a value only with the quality
// Fresh.
type Reading struct {
	Watts   float64
	Quality Quality
	Scope   string
	Why     string // of any other quality, for people
}

// component is one part of a node.
type component struct{ kind, id string }

func (c component) String() string {
	if c.kind == "" {
		return "the host"
	}
	return strings.TrimSpace(c.kind + " " + c.id)
}

// counter is what is known of one cumulative energy series.
type counter struct {
	at, start uint64 // Unix nanoseconds
	joules    float64
	rate      float64 // of the interval that ends at at
	rated     bool
	why       string // not rated
}

// power is what a document says of one component.
type power struct {
	energy, rated, gauged bool
	rate, gauge           float64 // the highest of the duplicates
	why                   string
}

// point is one of a series.
type point struct {
	who       component
	series    string
	at, start uint64
	v         float64
}

// points are those of a document that a reader asks for.
type points struct {
	cumulative, delta, gauge []point
	// odd says of components why a point of theirs is none: it is NaN, infinite or
	// below zero.
	odd map[component]string
}

// Read works out the reading of the next document.
func (r *Reader) Read(d Document) (Reading, error) {
	if d.Legacy {
		r.energy, r.newest = nil, 0
		if d.Watts > 0 {
			return Reading{Watts: d.Watts, Quality: Fresh, Scope: ScopeProducerDefined}, nil
		}
		return Reading{Quality: Missing, Scope: ScopeProducerDefined, Why: "neither packagePowerWatts nor cpu.packagePowerWatts of the legacy JSON is positive"}, nil
	}
	ps, err := r.points(d.Metrics)
	if err != nil {
		return Reading{}, err
	}
	out := Reading{Scope: r.scope()}
	newest := ps.newest()
	all := r.powers(ps, newest)
	stands := newest != 0 && newest == r.newest
	r.newest = newest
	if len(all) == 0 {
		out.Quality, out.Why = Missing, "the document has no energy or power of "+r.wants()
		return out, nil
	}
	for _, who := range slices.SortedFunc(maps.Keys(all), func(a, b component) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	}) {
		p := all[who]
		switch {
		case p.rated:
			out.Watts += p.rate
		case p.gauged:
			out.Watts += p.gauge
		default:
			return p.none(who, out.Scope), nil
		}
	}
	switch {
	case !finite(out.Watts):
		return Reading{}, errors.New("the sum of the components is no finite power")
	case stands:
		return Reading{Quality: Unchanged, Scope: out.Scope, Why: "no point is newer than at the poll before"}, nil
	}
	out.Quality = Fresh
	return out, nil
}

func (r *Reader) scope() string {
	if r.host() {
		return ScopeHost
	}
	return ScopeComponents
}

func (r *Reader) host() bool { return r.Host && r.Role == Controller }

func (r *Reader) window() uint64 { return uint64(cmp.Or(r.Window, AgentWindow)) }

func (r *Reader) wants() string {
	switch {
	case r.host():
		return "the host"
	case r.Role == Controller:
		return "a cpu or gpu"
	}
	return "a cpu"
}

// points picks those that the reader asks for, in the order of their times. One
// without a value is none.
func (r *Reader) points(md pmetric.Metrics) (points, error) {
	var out points
	energy, watts := "hw.energy", "hw.power"
	if r.host() {
		energy, watts = "hw.host.energy", "hw.host.power"
	}
	for _, rm := range md.ResourceMetrics().All() {
		resource := identity(rm.Resource().Attributes())
		for _, sm := range rm.ScopeMetrics().All() {
			series := resource + sm.Scope().Name() + "\x00" + sm.Scope().Version() + "\x00"
			for _, m := range sm.Metrics().All() {
				if m.Name() != energy && m.Name() != watts {
					continue
				}
				if err := r.metric(m, m.Name() == energy, series, &out); err != nil {
					return out, fmt.Errorf("%s: %w", m.Name(), err)
				}
			}
		}
	}
	for _, all := range [][]point{out.cumulative, out.delta, out.gauge} {
		slices.SortStableFunc(all, func(a, b point) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.start, b.start), cmp.Compare(a.v, b.v))
		})
	}
	return out, nil
}

// metric takes the points of an energy or a power metric.
func (r *Reader) metric(m pmetric.Metric, energy bool, series string, out *points) error {
	unit, to := "W", &out.gauge
	switch {
	case !energy && m.Type() == pmetric.MetricTypeGauge:
	case !energy:
		return fmt.Errorf("is a %s, want a gauge", strings.ToLower(m.Type().String()))
	case m.Type() != pmetric.MetricTypeSum:
		return fmt.Errorf("is a %s, want a sum", strings.ToLower(m.Type().String()))
	case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityCumulative:
		unit, to = "J", &out.cumulative
	case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
		unit, to = "J", &out.delta
	default:
		return errors.New("its aggregationTemporality is neither 1 (delta) nor 2 (cumulative)")
	}
	if m.Unit() != unit && m.Unit() != "" {
		return fmt.Errorf("its unit is %.20q, want %s", m.Unit(), unit)
	}
	if energy {
		r.pick(m.Name(), m.Sum().DataPoints(), series, to, out)
	} else {
		r.pick(m.Name(), m.Gauge().DataPoints(), series, to, out)
	}
	return nil
}

// pick appends the points of the components that are read.
func (r *Reader) pick(name string, dps pmetric.NumberDataPointSlice, series string, to *[]point, out *points) {
	for _, dp := range dps.All() {
		p := point{at: uint64(dp.Timestamp()), start: uint64(dp.StartTimestamp()), series: series + identity(dp.Attributes())}
		if dp.Flags().NoRecordedValue() {
			continue
		}
		switch dp.ValueType() {
		case pmetric.NumberDataPointValueTypeDouble:
			p.v = dp.DoubleValue()
		case pmetric.NumberDataPointValueTypeInt:
			p.v = float64(dp.IntValue())
		default:
			continue
		}
		if !r.host() {
			p.who = component{word(dp.Attributes(), "hw.type"), word(dp.Attributes(), "hw.id")}
			if p.who.kind != "cpu" && (p.who.kind != "gpu" || r.Role != Controller) {
				continue
			}
		}
		if !finite(p.v) {
			if out.odd == nil {
				out.odd = map[component]string{}
			}
			out.odd[p.who] = fmt.Sprintf("its %s is %g", name, p.v)
			continue
		}
		*to = append(*to, p)
	}
}

// word is an attribute as text, "" where there is none.
func word(attrs pcommon.Map, key string) string {
	v, ok := attrs.Get(key)
	if !ok {
		return ""
	}
	return v.AsString()
}

// identity is the attributes in one order.
func identity(attrs pcommon.Map) string {
	pairs := make([]string, 0, attrs.Len())
	for k, v := range attrs.All() {
		pairs = append(pairs, k+"\x01"+v.AsString()+"\x02")
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "") + "\x00"
}

func (ps points) newest() uint64 {
	var t uint64
	for _, all := range [][]point{ps.cumulative, ps.delta, ps.gauge} {
		if len(all) > 0 {
			t = max(t, all[len(all)-1].at)
		}
	}
	return t
}

// none is the reading of a document with a component that has no power.
func (p *power) none(who component, scope string) Reading {
	if !p.energy {
		return Reading{Quality: Missing, Scope: scope, Why: fmt.Sprintf("%s has no power: %s", who, p.why)}
	}
	return Reading{Quality: Warming, Scope: scope, Why: fmt.Sprintf("%s has an energy counter without a rate and no power gauge: %s", who, p.why)}
}

// powers takes the counters on and gathers what there is of each component, also of
// one whose points are no numbers: without it the sum of the others would pass for
// whole. A point that lies further behind the document's newest than the window is of
// a series that has died.
func (r *Reader) powers(ps points, newest uint64) map[component]*power {
	out := map[component]*power{}
	of := func(p point) *power {
		if out[p.who] == nil {
			out[p.who] = &power{}
		}
		return out[p.who]
	}
	dead := func(p point) bool { return p.at != 0 && newest-p.at > r.window() }
	for _, p := range lastOf(ps.gauge) {
		if w := of(p); dead(p) {
			w.why = "its newest point lies further behind than the window"
		} else {
			w.gauge, w.gauged = max(w.gauge, p.v), true
		}
	}
	for _, p := range lastOf(ps.delta) {
		w := of(p)
		switch w.energy = true; {
		case dead(p):
			w.why = "its newest point lies further behind than the window"
		case p.start == 0 || p.at <= p.start:
			w.why = "a delta point without an interval of its own"
		default:
			w.rate, w.rated = max(w.rate, p.v/seconds(p.at-p.start)), true
		}
	}
	for _, p := range ps.cumulative {
		r.count(p)
	}
	for _, p := range lastOf(ps.cumulative) {
		w, c := of(p), r.energy[p.series]
		switch w.energy = true; {
		case dead(p):
			w.why = "its newest point lies further behind than the window"
		case !c.rated:
			w.why = c.why
		default:
			w.rate, w.rated = max(w.rate, c.rate), true
		}
	}
	for who, why := range ps.odd {
		if w := of(point{who: who}); w.why == "" {
			w.why = why
		}
	}
	for id, c := range r.energy { // what no later point can be compared with
		if newest > c.at && newest-c.at > r.window() {
			delete(r.energy, id)
		}
	}
	return out
}

// lastOf keeps the newest point of each series, and all that share its time.
func lastOf(ps []point) []point {
	last := map[string]uint64{}
	for _, p := range ps {
		last[p.series] = max(last[p.series], p.at)
	}
	return slices.DeleteFunc(slices.Clone(ps), func(p point) bool { return p.at != last[p.series] })
}

// count takes a counter's next point: its power is the energy since the point
// before over the time between them, by the producer's clock.
func (r *Reader) count(p point) {
	if r.energy == nil {
		r.energy = map[string]*counter{}
	}
	was := r.energy[p.series]
	now := &counter{at: p.at, start: p.start, joules: p.v}
	switch {
	case was == nil:
		now.why = "its first point"
	case p.start != was.start:
		now.why = "it was reset: its startTimeUnixNano is another"
	case p.v < was.joules:
		now.why = "it was reset: it went back"
	case p.at == was.at:
		return // once more
	case p.at < was.at:
		now.why = "its time went back"
	case p.at-was.at > r.window():
		now.why = fmt.Sprintf("%s since the point before, longer than the window of %s", time.Duration(p.at-was.at), time.Duration(r.window()))
	default:
		now.rate, now.rated = (p.v-was.joules)/seconds(p.at-was.at), true
	}
	r.energy[p.series] = now
}

func seconds(nanos uint64) float64 { return float64(nanos) / 1e9 }
