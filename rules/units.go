package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
)

// unit is one of the units that a reading's own can be compared with: what it
// measures, and how many of the base unit of that it is.
type unit struct {
	word string
	of   dimension
	size float64
}

type dimension uint8

const (
	dimPower dimension = iota + 1
	dimEnergy
	dimCelsius
	dimKelvin
	dimFrequency
	dimDuration
	dimShare
	dimBytes
	dimByteRate
	dimVoltage
	dimCurrent
	dimRotation
)

// units are those that readings and metrics have, as OpenTelemetry writes them. A
// word that is not here, such as {gpu}, says nothing that can be compared.
var units = []unit{
	{"W", dimPower, 1}, {"kW", dimPower, 1e3}, {"MW", dimPower, 1e6}, {"mW", dimPower, 1e-3}, {"uW", dimPower, 1e-6},
	{"J", dimEnergy, 1}, {"kJ", dimEnergy, 1e3}, {"MJ", dimEnergy, 1e6}, {"mJ", dimEnergy, 1e-3}, {"uJ", dimEnergy, 1e-6},
	{"W.h", dimEnergy, 3600}, {"kW.h", dimEnergy, 3.6e6}, {"Wh", dimEnergy, 3600}, {"kWh", dimEnergy, 3.6e6},
	{"Cel", dimCelsius, 1}, {"K", dimKelvin, 1},
	{"Hz", dimFrequency, 1}, {"kHz", dimFrequency, 1e3}, {"MHz", dimFrequency, 1e6}, {"GHz", dimFrequency, 1e9},
	{"s", dimDuration, 1}, {"ms", dimDuration, 1e-3}, {"us", dimDuration, 1e-6}, {"ns", dimDuration, 1e-9},
	{"min", dimDuration, 60}, {"h", dimDuration, 3600}, {"d", dimDuration, 86400},
	{"1", dimShare, 1}, {"%", dimShare, 0.01},
	{"By", dimBytes, 1}, {"kBy", dimBytes, 1e3}, {"MBy", dimBytes, 1e6}, {"GBy", dimBytes, 1e9},
	{"KiBy", dimBytes, 1 << 10}, {"MiBy", dimBytes, 1 << 20}, {"GiBy", dimBytes, 1 << 30}, {"By/s", dimByteRate, 1},
	{"V", dimVoltage, 1}, {"mV", dimVoltage, 1e-3}, {"A", dimCurrent, 1}, {"mA", dimCurrent, 1e-3}, {"rpm", dimRotation, 1},
}

// unitEndings are the last words of metric names that say a unit, as Prometheus and
// its exporters write them.
var unitEndings = map[string]string{
	"watts": "W", "watt": "W", "kilowatts": "kW", "milliwatts": "mW", "microwatts": "uW",
	"joules": "J", "joule": "J", "kilojoules": "kJ", "millijoules": "mJ", "microjoules": "uJ", "kwh": "kW.h",
	"celsius": "Cel", "kelvin": "K", "hertz": "Hz", "megahertz": "MHz", "mhz": "MHz",
	"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns",
	"ratio": "1", "percent": "%", "bytes": "By", "volts": "V", "amperes": "A", "amps": "A", "rpm": "rpm",
}

// gaugeUnits are those that no counter has.
var gaugeUnits = []dimension{dimPower, dimCelsius, dimKelvin, dimFrequency, dimShare, dimVoltage, dimCurrent, dimRotation}

func unitNamed(word string) (unit, bool) {
	i := slices.IndexFunc(units, func(u unit) bool { return u.word == word })
	if i < 0 {
		return unit{}, false
	}
	return units[i], true
}

// measure is what a part of an expression gives: its unit, and the words for what
// has it.
type measure struct {
	unit
	what   string
	height bool // a counter's own height
}

func (m measure) String() string {
	if m.of == dimShare && m.size == 1 {
		return m.what + " is a ratio"
	}
	return m.what + " is in " + m.word
}

// checkUnit tells of a unit that is not the expression's (S0-146): then each limit
// that is written for the reading is another quantity. What converts, or may, and
// what has no unit that is known, is not told of.
func (l *loader) checkUnit(r *rawReading) {
	declared, ok := unitNamed(r.Unit)
	if !ok {
		return
	}
	trees := []*tree{r.tree}
	for _, s := range r.spares {
		if s.tree != nil {
			trees = append(trees, s.tree)
		}
	}
	for _, t := range trees {
		for _, m := range l.measures(t.root, len(l.readings)) {
			if m.of == declared.of && m.size == declared.size {
				continue
			}
			if m.height && declared.of == dimPower && scaledSelector(t.root) == nil {
				continue // told of as a counter without rate()
			}
			l.lint(t.rule, r.def.get("unit").at(), "unit %s, but %s: %s", r.Unit, m, wayOut(declared, m))
			return
		}
	}
}

func wayOut(declared unit, m measure) string {
	write := "write unit: " + m.word
	if m.of == dimShare {
		write = fmt.Sprintf("write unit: %q", m.word)
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	switch factor := m.size / declared.size; {
	case m.of == dimEnergy && declared.of == dimPower && m.height:
		return "read it with rate(), or " + write
	case m.of == dimPower && declared.of == dimEnergy:
		return write + ", or read a counter with increase()"
	case m.of != declared.of:
		return write
	case factor > 1:
		return "multiply it by " + number(factor) + ", or " + write
	default:
		return "divide it by " + number(1/factor) + ", or " + write
	}
}

// measures are the units that an expression can be told to have: one for each side
// of an `or`, a sum or a difference, which all go into the answers. None where it
// is not certain. depth bounds how many readings are looked through.
func (l *loader) measures(e parser.Expr, depth int) []measure {
	switch e := unbracket(e).(type) {
	case *parser.VectorSelector:
		return l.measured(e, depth)
	case *parser.MatrixSelector:
		return l.measures(e.VectorSelector, depth)
	case *parser.SubqueryExpr:
		return l.measures(e.Expr, depth)
	case *parser.UnaryExpr:
		return l.measures(e.Expr, depth)
	case *parser.AggregateExpr:
		switch e.Op {
		case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.TOPK, parser.BOTTOMK, parser.QUANTILE, parser.STDDEV, parser.LIMITK, parser.LIMIT_RATIO:
			return l.measures(e.Expr, depth)
		}
	case *parser.Call:
		return l.called(e, depth)
	case *parser.BinaryExpr:
		return l.combined(e, depth)
	}
	return nil
}

// measured is the unit of a reading, as it says, or as its expression gives it; or
// that of a metric.
func (l *loader) measured(vs *parser.VectorSelector, depth int) []measure {
	r := l.readings[vs.Name]
	if r == nil {
		name := metricName(vs)
		if u, ok := unitOfMetric(name); ok {
			return []measure{{u, name, strings.HasSuffix(name, "_total")}}
		}
		return nil
	}
	if u, ok := unitNamed(r.Unit); ok {
		return []measure{{u, r.Name, false}}
	}
	if r.Unit != "" || r.tree == nil || depth == 0 {
		return nil
	}
	return l.measures(r.tree.root, depth-1)
}

// unitOfMetric is the unit that the contract's table has for a metric, or that its
// name ends in.
func unitOfMetric(name string) (unit, bool) {
	if m, ok := contracted(name); ok {
		return unitNamed(m.Unit)
	}
	return unitNamed(unitEndings[lastWord(name)])
}

// contracted finds a metric of the contract by any of its spellings.
func contracted(name string) (names.Metric, bool) {
	for _, m := range names.Metrics() {
		for _, s := range names.Strategies() {
			if m.Stored(s) == name {
				return m, true
			}
		}
	}
	return names.Metric{}, false
}

// lastWord is the word of a metric's name that says its unit, if one does.
func lastWord(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "_total"), "_sum")
	return strings.ToLower(name[strings.LastIndex(name, "_")+1:])
}

// sameUnit are the functions whose answers have the unit of an argument, by its
// place.
var sameUnit = map[string]int{
	"increase": 0, "delta": 0, "idelta": 0, coveredIncrease: 0,
	"avg_over_time": 0, "min_over_time": 0, "max_over_time": 0, "last_over_time": 0, "first_over_time": 0,
	"stddev_over_time": 0, "mad_over_time": 0, "quantile_over_time": 1, "predict_linear": 0, "double_exponential_smoothing": 0,
	"abs": 0, "ceil": 0, "floor": 0, "round": 0, "clamp": 0, "clamp_max": 0, "clamp_min": 0, "scalar": 0,
	"sort": 0, "sort_desc": 0, "sort_by_label": 0, "sort_by_label_desc": 0, "label_replace": 0, "label_join": 0,
}

func (l *loader) called(e *parser.Call, depth int) []measure {
	if i, ok := sameUnit[e.Func.Name]; ok {
		out := l.measures(e.Args[i], depth)
		for j := range out {
			out[j].height = out[j].height && !slices.Contains(counterWise, e.Func.Name)
		}
		return out
	}
	if !slices.Contains([]string{"rate", "irate", "deriv", coveredRate}, e.Func.Name) {
		return nil
	}
	var out []measure
	for _, m := range l.measures(e.Args[0], depth) {
		if u, ok := perSecond(m.unit); ok {
			out = append(out, measure{u, strings.TrimPrefix(e.Func.Name, "covered_") + "() of " + m.what, false})
		}
	}
	return out
}

// perSecond is a unit by the second, where that is a unit too.
func perSecond(u unit) (unit, bool) {
	by := map[dimension]dimension{dimEnergy: dimPower, dimDuration: dimShare, dimBytes: dimByteRate}[u.of]
	i := slices.IndexFunc(units, func(o unit) bool { return o.of == by && o.size == u.size })
	if i < 0 {
		return unit{}, false
	}
	return units[i], true
}

func (l *loader) combined(e *parser.BinaryExpr, depth int) []measure {
	_, constL := constant(e.LHS)
	_, constR := constant(e.RHS)
	both := func() []measure { return slices.Concat(l.measures(e.LHS, depth), l.measures(e.RHS, depth)) }
	switch {
	case e.Op.IsComparisonOperator() && e.ReturnBool:
		return nil
	case e.Op == parser.LAND, e.Op == parser.LUNLESS, e.Op.IsComparisonOperator():
		if !isVector(e.LHS) {
			return l.measures(e.RHS, depth)
		}
		return l.measures(e.LHS, depth)
	case e.Op == parser.LOR:
		return both()
	case e.Op == parser.ADD, e.Op == parser.SUB:
		if constL || constR { // from degrees of one kind to those of another
			return slices.DeleteFunc(both(), func(m measure) bool { return m.of == dimCelsius || m.of == dimKelvin })
		}
		return both()
	case e.Op == parser.MUL && labelsAlone(e.RHS):
		return l.measures(e.LHS, depth)
	case e.Op == parser.MUL && labelsAlone(e.LHS):
		return l.measures(e.RHS, depth)
	case e.Op == parser.DIV:
		return l.quotient(e, depth)
	}
	return nil
}

// quotient is a share, of one unit by the same.
func (l *loader) quotient(e *parser.BinaryExpr, depth int) []measure {
	upper, lower := l.measures(e.LHS, depth), l.measures(e.RHS, depth)
	if len(upper) == 0 || len(lower) == 0 {
		return nil
	}
	for _, m := range slices.Concat(upper, lower) {
		if m.of != upper[0].of || m.size != upper[0].size {
			return nil
		}
	}
	one, _ := unitNamed("1")
	return []measure{{one, upper[0].what + " by " + lower[0].what, false}}
}

// labelsAlone reports whether a factor is 1 wherever it is there: the labels of
// something, kept as a metric.
func labelsAlone(e parser.Expr) bool {
	found, all := false, true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			word := lastWord(metricName(n))
			found, all = true, all && (word == "info" || word == "labels")
		case *parser.AggregateExpr:
			all = all && slices.Contains([]parser.ItemType{parser.MAX, parser.MIN, parser.GROUP, parser.AVG}, n.Op)
		case *parser.BinaryExpr:
			all = all && (n.Op.IsSetOperator() || n.Op.IsComparisonOperator())
		}
		return nil
	})
	return found && all
}

// checkRates tells of rate() over a gauge: each fall of it is taken for a restart of
// a counter, and the answer grows with how often it falls.
func (l *loader) checkRates(t *tree) {
	parser.Inspect(t.root, func(n parser.Node, above []parser.Node) error {
		c, ok := n.(*parser.Call)
		if !ok || !slices.Contains([]string{"rate", "irate", "increase", coveredRate, coveredIncrease}, c.Func.Name) || ofHistogram(above) {
			return nil
		}
		vs := ranged(c.Args[0])
		if vs == nil || !l.gauge(vs) {
			return nil
		}
		word, instead := strings.TrimPrefix(c.Func.Name, "covered_"), "deriv()"
		if word == "increase" {
			instead = "delta()"
		}
		l.lint(t.rule, t.place(vs.PosRange), "%s is a gauge, and %s() takes each fall of a gauge for a counter that restarts: read it as it is or by avg_over_time(), or %s for its change",
			metricName(vs), word, instead)
		return nil
	})
}

// ofHistogram reports whether what is below reads a histogram, which may have any
// name.
func ofHistogram(above []parser.Node) bool {
	return slices.ContainsFunc(above, func(n parser.Node) bool {
		c, ok := n.(*parser.Call)
		return ok && strings.HasPrefix(c.Func.Name, "histogram_")
	})
}

// ranged is the selector that a range is of.
func ranged(e parser.Expr) *parser.VectorSelector {
	switch e := unbracket(e).(type) {
	case *parser.MatrixSelector:
		vs, _ := e.VectorSelector.(*parser.VectorSelector)
		return vs
	case *parser.SubqueryExpr:
		vs, _ := unbracket(e.Expr).(*parser.VectorSelector)
		return vs
	}
	return nil
}

// gauge reports whether a metric is one by the contract's table or by its name, or
// a reading by its unit.
func (l *loader) gauge(vs *parser.VectorSelector) bool {
	name := metricName(vs)
	if r := l.readings[vs.Name]; r != nil {
		if name = l.metricBehind(vs.Name); name == "" {
			u, ok := unitNamed(r.Unit)
			return ok && u.of != dimShare && slices.Contains(gaugeUnits, u.of)
		}
	}
	if m, ok := contracted(name); ok {
		return m.Kind != names.Counter
	}
	u, ok := unitNamed(unitEndings[lastWord(name)])
	return ok && !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_sum") && slices.Contains(gaugeUnits, u.of)
}
