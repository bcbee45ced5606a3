package rules

import (
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/internal/nearest"
)

// expand puts readings and parameters into every expression, checks what comes
// out, and plans it.
func (l *loader) expand() *Set {
	out := &Set{Off: l.off}
	base := make(map[string]*Reading, len(l.readings))
	l.acting = l.actingRules()
	for _, name := range slices.Sorted(maps.Keys(l.readings)) {
		raw := l.readings[name]
		l.checkReading(raw)
		if r := l.instance(raw, env{params: l.params}); r != nil {
			base[name] = r
			out.Readings = append(out.Readings, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.controls)) {
		out.Controls = append(out.Controls, l.control(l.controls[name], base))
	}
	for _, name := range slices.Sorted(maps.Keys(l.params)) {
		p := l.params[name]
		at := p.value.origin(name)
		out.Params = append(out.Params, Param{
			Name: name, Value: p.value.text, Unit: p.unit, Help: p.help, File: at.File, Line: at.Line,
		})
	}
	return out
}

// instance is a reading under one set of parameters; nil when it is broken,
// which the report says.
func (l *loader) instance(raw *rawReading, e env) *Reading {
	if raw.broken {
		return nil
	}
	r := raw.Reading
	plan, joined, selectors := l.plans(raw.expr, e, whose{rate: raw.Rate, key: raw.written}, r.Key)
	if plan == nil {
		return nil
	}
	r.plan, r.joined, r.selectors = plan, joined, selectors
	r.params = e.origins(raw.reads)
	r.Query = r.plan.query
	return &r
}

// plans are the one or two forms of an expression that run, and the selectors of
// what it reads: target_info, which a join adds, tells no news of its own.
func (l *loader) plans(x *expression, e env, w whose, key []string) (first, second *plan, selectors [][]*labels.Matcher) {
	plain := l.expansion(x, e, w, false)
	if plain == nil {
		return nil, nil, nil
	}
	selectors = parser.ExtractSelectors(plain.root)
	first = l.plan(x, plain, key)
	if attributes := l.settings.Attributes; first == nil || attributes == "" || attributes == AttributesLabels {
		return first, nil, selectors
	}
	byInfo := l.expansion(x, e, w, true)
	if byInfo == nil || !byInfo.joined {
		return first, nil, selectors
	}
	second = l.plan(x, byInfo, key)
	if second != nil {
		first.form, second.form = AttributesLabels, AttributesTargetInfo
		second.node = byInfo.node
	}
	if l.settings.Attributes == AttributesTargetInfo {
		return second, nil, selectors
	}
	return first, second, selectors
}

func (l *loader) plan(x *expression, w *expansion, key []string) *plan {
	if w == nil {
		return nil
	}
	p, err := newPlan(w.root, key, w.covered)
	if err != nil {
		l.errorf(x.rule, x.at.at(), "%s", err)
		return nil
	}
	p.words = w.words
	return p
}

func (l *loader) control(raw *rawControl, base map[string]*Reading) *Control {
	c := &raw.Control
	e := env{params: l.params, with: raw.with, trusted: c.TrustedChannels}
	rate := l.rate(ruleName("controls", c.Name), raw.def)
	engage, release, value := l.parse(raw.engage, e), l.parse(raw.release, e), l.parse(raw.value, e)
	l.checkControl(raw, engage, release, value)

	uses, params, spare := map[string]bool{}, maps.Clone(raw.fieldParams), map[string]bool{}
	size := 0
	for _, t := range []*tree{engage, release, value} {
		if t == nil {
			continue
		}
		l.readBy(t)
		maps.Copy(params, t.uses)
		size = max(size, countNodes(t))
		for _, ref := range l.references(t.root) {
			uses[ref.Name] = true
			maps.Copy(params, l.readings[ref.Name].reads)
			maps.Copy(spare, l.readings[ref.Name].spareReads)
		}
	}
	l.checkWith(raw, params, spare)
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if r := l.used(name, e, base); r != nil {
			c.Uses = append(c.Uses, r)
		}
	}
	for i, part := range []struct {
		tree *tree
		into **plan
	}{{engage, &c.engage}, {release, &c.release}, {value, &c.value}} {
		if part.tree == nil || l.tooManyNodes(part.tree) {
			continue
		}
		var selectors [][]*labels.Matcher
		*part.into, c.joined[i], selectors = l.plans(part.tree.expression, e, whose{rate: rate, key: c.Key, keyed: true}, c.Key)
		c.selectors = append(c.selectors, selectors...)
	}
	c.params = e.origins(params)
	return c
}

// used is a reading as a control uses it: the one of the set, or an instance of
// its own when the control sets one of its parameters or trusts more channels.
func (l *loader) used(name string, e env, base map[string]*Reading) *Reading {
	raw := l.readings[name]
	own := len(e.trusted) > 0
	for param := range e.with {
		own = own || raw.reads[param]
	}
	if own {
		return l.instance(raw, e)
	}
	return base[name]
}

func (l *loader) tooManyNodes(t *tree) bool {
	size := countNodes(t)
	for _, ref := range l.references(t.root) {
		size = min(size+l.readings[ref.Name].size, maxNodes+1)
	}
	if size > maxNodes {
		l.tooLarge(t.expression)
	}
	return size > maxNodes
}

// checkWith refuses a parameter that a control sets and that nothing of it reads,
// nor would under another choice of variants, which is not the control's to make.
func (l *loader) checkWith(raw *rawControl, params, spare map[string]bool) {
	v := raw.def.get("with")
	if v == nil || v.broken {
		return
	}
	for _, e := range v.entries {
		if _, set := raw.with[e.key.text]; set && !params[e.key.text] && !spare[e.key.text] && !HasErrors(l.messages) {
			l.add(SeverityError, ruleName("controls", raw.Name), e.key.at(),
				nearest.Of(e.key.text, slices.Sorted(maps.Keys(params))),
				"with sets $%s, which neither the control nor a reading that it uses reads", e.key.text)
		}
	}
}
