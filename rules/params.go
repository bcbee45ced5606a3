package rules

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/internal/nearest"
)

// param is a knob with its value after all files.
type param struct {
	name, unit, help string
	value            quantity
	min, max         *quantity
	def              *definition
	used             bool
}

// env is what $name stands for in one rule: the parameters of all files, under
// what the control sets by `with`.
type env struct {
	params map[string]*param
	with   map[string]quantity
	seen   map[string]bool // where not nil, collects the names that were looked up
	// trusted are the workload channels that may be read, beside node channels.
	trusted []string
}

func (e env) lookup(name string) (quantity, bool) {
	p := e.params[name]
	if p == nil {
		return quantity{}, false
	}
	p.used = true
	if e.seen != nil {
		e.seen[name] = true
	}
	if q, ok := e.with[name]; ok {
		return q, true
	}
	return p.value, true
}

func (l *loader) unknownParam(rule, name string, at place, e env) {
	if l.incomplete {
		return // it may stand in the file that could not be read
	}
	l.add(SeverityError, rule, at, nearest.Of(name, slices.Sorted(maps.Keys(e.params))), "unknown parameter $%s", name)
}

func (l *loader) buildParams() {
	l.params = make(map[string]*param, len(l.merged["params"]))
	for name, def := range l.merged["params"] {
		f := fields{loader: l, rule: ruleName("params", name)}
		p := &param{name: name, def: def, unit: f.text(def.get("unit")), help: f.text(def.get("help"))}
		l.params[name] = p
		if def.get("value") == nil {
			l.errorf(f.rule, def.key.at(), "value is missing")
			continue
		}
		p.value = l.quantityOf(f.rule, def.get("value"))
		p.min, p.max = l.bound(f.rule, def.get("min")), l.bound(f.rule, def.get("max"))
		l.oneKind(f.rule, p)
		l.within(f.rule, p, p.value)
	}
	l.setRateWindow()
}

func (l *loader) bound(rule string, v *value) *quantity {
	if v == nil || v.broken {
		return nil
	}
	if q := l.quantityOf(rule, v); q.text != "" {
		return &q
	}
	return nil
}

// oneKind refuses a parameter whose value is a duration and whose unit or bounds
// are those of a number, or the other way round. It leaves no such bound.
func (l *loader) oneKind(rule string, p *param) {
	if p.value.text == "" {
		p.min, p.max = nil, nil
		return
	}
	at := p.value.at.at()
	switch {
	case p.value.isDuration && p.unit != "" && p.unit != "s":
		l.errorf(rule, at, "value is a duration (%s), but the unit is %s", p.value.text, p.unit)
	case p.min != nil && p.min.isDuration != p.value.isDuration:
		l.errorf(rule, at, "value is %s (%s), but min is %s (%s)", p.value.kind(), p.value.text, p.min.kind(), p.min.text)
	case p.max != nil && p.max.isDuration != p.value.isDuration:
		l.errorf(rule, at, "value is %s (%s), but max is %s (%s)", p.value.kind(), p.value.text, p.max.kind(), p.max.text)
	default:
		return
	}
	p.min, p.max = nil, nil
}

// quantityOf reads a number or a duration. Its text is empty when it is neither.
func (l *loader) quantityOf(rule string, v *value) quantity {
	if v.broken {
		return quantity{at: v}
	}
	if q, ok := readQuantity(v); ok {
		return q
	}
	l.add(SeverityError, rule, v.at(), meantDuration(v.text),
		"%q is neither a number nor a duration such as 30s or 1h30m", v.text)
	return quantity{at: v}
}

func readQuantity(v *value) (quantity, bool) {
	if n, ok := parseNumber(v.text); ok {
		return quantity{text: v.text, number: n, at: v}, true
	}
	d, ok := parseDuration(v.text)
	return quantity{text: v.text, isDuration: true, duration: d, at: v}, ok
}

// keepsKind refuses a file that makes a duration of a number, or the other way
// round: the expressions that read the parameter stand elsewhere.
func (l *loader) keepsKind(rule string, before, after *value) bool {
	if before == nil || after == nil || before.broken || after.broken {
		return true
	}
	was, ok := readQuantity(before)
	is, okNow := readQuantity(after)
	if ok && okNow && was.isDuration != is.isDuration {
		l.errorf(rule, after.at(), "%s is %s, but the parameter is %s (%s, %s:%d)",
			is.text, is.kind(), was.kind(), was.text, before.file.name, before.line)
		return false
	}
	return true
}

// within checks a value against the bounds of its parameter.
func (l *loader) within(rule string, p *param, q quantity) bool {
	at := atSettings()
	if q.at != nil {
		at = q.at.at()
	}
	switch {
	case q.text == "":
		return false
	case p.value.text != "" && q.isDuration != p.value.isDuration:
		l.errorf(rule, at, "%s is %s (%s), %s is %s", p.name, p.value.kind(), p.value.text, q.text, q.kind())
	case p.min != nil && q.less(*p.min):
		l.errorf(rule, at, "%s is %s, below its minimum %s%s", p.name, q.text, p.min.text, setAt(p.min.at, at))
	case p.max != nil && p.max.less(q):
		l.errorf(rule, at, "%s is %s, above its maximum %s%s", p.name, q.text, p.max.text, setAt(p.max.at, at))
	default:
		return true
	}
	return false
}

// setAt names the place of a bound that stands in another file than the value.
func setAt(v *value, other place) string {
	if v.file == other.file {
		return ""
	}
	return " (" + v.file.name + ":" + strconv.Itoa(v.line) + ")"
}

func (l *loader) setRateWindow() {
	p := l.params[rateWindow]
	if p == nil || l.settings.RateWindow == 0 {
		return
	}
	q := quantity{text: formatDuration(l.settings.RateWindow), isDuration: true, duration: l.settings.RateWindow}
	if l.within(ruleName("params", rateWindow), p, q) {
		p.value = q
	}
}

// with reads the parameters that a control sets for itself and its readings.
func (l *loader) with(rule string, v *value) map[string]quantity {
	with := map[string]quantity{}
	if v == nil || v.broken {
		return with
	}
	for _, e := range v.entries {
		p := l.params[e.key.text]
		if p == nil {
			l.unknownParam(rule, e.key.text, e.key.at(), env{params: l.params})
			continue
		}
		if q := l.quantityOf(rule, e.value); l.within(rule, p, q) {
			with[e.key.text] = q
		}
	}
	return with
}

// checkUnused warns of a parameter that nothing reads and that does not
// introduce itself by a help text: most likely a misspelt override.
func (l *loader) checkUnused() {
	if l.incomplete || HasErrors(l.messages) {
		return // what uses it may be what could not be read
	}
	for _, p := range l.params {
		if p.used || p.help != "" {
			continue
		}
		var others []string
		for name, o := range l.params {
			if o.used {
				others = append(others, name)
			}
		}
		slices.Sort(others)
		l.add(SeverityWarning, ruleName("params", p.name), p.def.key.at(), nearest.Of(p.name, others),
			"no rule reads $%s", p.name)
	}
}

// piece is a stretch of an expression that a parameter was put into: where it
// lies in the text as written, and where in the text that is parsed.
type piece struct{ start, end, outStart, outEnd int }

// written maps an offset in the parsed text back to the text as written. An
// offset inside a parameter's value becomes the start or the end of its name.
func written(pieces []piece, offset int, end bool) int {
	shift := 0
	for _, p := range pieces {
		switch {
		case offset <= p.outStart:
			return offset + shift
		case offset < p.outEnd && !end:
			return p.start
		case offset <= p.outEnd && end:
			return p.end
		}
		shift = p.end - p.outEnd
	}
	return offset + shift
}

// substitute puts the parameters into an expression, outside PromQL strings and
// comments alone.
func (l *loader) substitute(x *expression, e env) (string, []piece) {
	var out strings.Builder
	var pieces []piece
	in := scanner{text: x.text}
	for in.next() {
		if in.param == "" {
			out.WriteString(in.token)
			continue
		}
		x.uses[in.param] = true
		start := out.Len()
		out.WriteString(l.paramText(x, in, e))
		pieces = append(pieces, piece{in.start, in.at, start, out.Len()})
	}
	return out.String(), pieces
}

func (l *loader) wrongKind(rule string, at place, name string, q quantity) {
	wants := "a duration"
	if q.isDuration {
		wants = "a number"
	}
	l.errorf(rule, at, "$%s is %s (%s) where %s belongs", name, q.kind(), q.text, wants)
}

// paramText is what goes into the expression for a parameter; where the
// parameter is unknown or of the wrong kind, something that parses, so that the
// rest of the expression is still checked.
func (l *loader) paramText(x *expression, in scanner, e env) string {
	at := x.at.within(in.start, in.at)
	stand := "1"
	if in.duration {
		stand = "1m"
	}
	q, ok := e.lookup(in.param)
	switch {
	case !ok:
		l.unknownParam(x.rule, in.param, at, e)
	case q.text == "":
	case q.isDuration != in.duration:
		l.wrongKind(x.rule, at, in.param, q)
	default:
		return q.promQL()
	}
	x.patched = true
	return stand
}
