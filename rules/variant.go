package rules

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/internal/nearest"
)

// Choice is what the configuration says of a reading that has variants.
type Choice struct {
	Use    string // the variant; "" leaves it to the files
	Suffix string // put behind the variant's name, as -host is for a scope
	Origin string // what set it, for messages: "NODE_POWER_PRESET is kepler"
}

// variantNames are what a variant can be called.
var variantNames = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// chosen is where the parts of a reading stand: in the reading itself, or in the
// variant of it that is used.
type chosen struct {
	name      string // of the variant, "" where the reading has none
	key, expr *value
	help      *value
	note      *value
	public    *value // the key that other rules read it by, where that is another
	all       []string
	// bySettings says that the configuration chose another than the files do.
	bySettings bool
}

// choose finds the parts of a reading.
func (l *loader) choose(rule, name string, def *definition) chosen {
	variants, use := def.get("variants"), def.get("use")
	if variants == nil {
		l.missing(rule, def, required["readings"])
		if use != nil {
			l.errorf(rule, use.at(), "use chooses among variants, and the reading has none")
		}
		if c := l.settings.Use[name]; c.Origin != "" {
			l.warnf(rule, def.key.at(), "%s, but the reading has no variants here: its own expr is read", c.Origin)
		}
		return chosen{key: def.get("key"), expr: def.get("expr"), help: def.get("help"), note: def.get("note")}
	}
	if variants.broken {
		return chosen{}
	}
	if expr := def.get("expr"); expr != nil {
		l.errorf(rule, l.latest(expr, variants), "expr and variants: a reading has one or the other; write the expr of one variant, or a whole reading with replace: true")
	}
	l.checkVariants(rule, def, variants)
	all := make([]string, 0, len(variants.entries))
	for _, e := range variants.entries {
		all = append(all, e.key.text)
	}
	slices.Sort(all)
	v, picked := l.pick(rule, name, def, all)
	if v == nil || v.broken {
		return chosen{key: def.get("key"), all: all}
	}
	out := chosen{name: picked, key: v.get("key"), expr: v.get("expr"), help: v.get("help"), note: v.get("note"), all: all}
	out.bySettings = def.get("use") == nil || def.get("use").text != picked
	if out.help == nil {
		out.help = def.get("help")
	}
	if out.note == nil {
		out.note = def.get("note")
	}
	if public := def.get("key"); out.key == nil {
		out.key = public
	} else {
		out.public = public
	}
	return out
}

// pick is the variant that is used: the configuration's before the files'.
func (l *loader) pick(rule, name string, def *definition, all []string) (*value, string) {
	variants, use := def.get("variants"), def.get("use")
	choice := l.settings.Use[name]
	if use == nil && choice.Use == "" {
		l.errorf(rule, def.key.at(), "a key is missing: use, which names one of the variants %s", strings.Join(all, ", "))
		return nil, ""
	}
	file := ""
	if use != nil {
		file = use.text
	}
	picked := cmp.Or(choice.Use, file) + choice.Suffix
	v := variants.get(picked)
	switch {
	case v != nil:
	case choice.Origin != "":
		l.add(SeverityError, rule, atSettings(), nearest.Of(picked, all), "%s: there is no variant %s; there are %s", choice.Origin, picked, strings.Join(all, ", "))
	default:
		l.add(SeverityError, rule, use.at(), nearest.Of(picked, all), "there is no variant %s; there are %s", picked, strings.Join(all, ", "))
	}
	return v, picked
}

// checkVariants looks at each variant, whichever is used.
func (l *loader) checkVariants(rule string, def *definition, variants *value) {
	public := def.get("key")
	for _, e := range variants.entries {
		switch key := e.value.get("key"); {
		case !variantNames.MatchString(e.key.text):
			l.errorf(rule, e.key.at(), "%q is no name of a variant: small letters, digits, - and _, the first a letter", e.key.text)
		case e.value.broken:
		case e.value.get("expr") == nil:
			l.errorf(rule, e.key.at(), "variant %s has no expr", e.key.text)
		case key == nil && public == nil:
			l.errorf(rule, e.key.at(), "variant %s has no key, and neither has the reading", e.key.text)
		case key != nil && public != nil && !key.broken && !public.broken:
			l.checkRenames(rule, e.key.text, key, public)
		}
	}
}

// checkRenames refuses a variant's key that cannot stand for the reading's.
func (l *loader) checkRenames(rule, variant string, own, public *value) {
	if len(own.items) != len(public.items) {
		l.errorf(rule, l.latest(own, public), "variant %s has a key of %d labels, the reading one of %d: label by label, one is read as the other",
			variant, len(own.items), len(public.items))
		return
	}
	for i, item := range own.items {
		if slices.ContainsFunc(public.items, func(o *value) bool { return o.text == item.text && o != public.items[i] }) && item.text != public.items[i].text {
			l.errorf(rule, l.latest(own, public), "variant %s has %s at another place of its key than the reading", variant, item.text)
		}
	}
}

// spare is a variant that is not used. It is checked all the same, so that a
// change of the configuration meets no surprise.
type spare struct {
	expr *expression
	tree *tree
	key  []string
}

func (l *loader) spares(rule string, def *definition, used string) []*spare {
	var out []*spare
	f := fields{loader: l, rule: rule}
	for _, e := range def.get("variants").listed() {
		if e.key.text == used || e.value.broken {
			continue
		}
		key := e.value.get("key")
		if key == nil {
			key = def.get("key")
		}
		out = append(out, &spare{expr: l.expression(rule, e.value.get("expr"), "expr"), key: f.key(key)})
	}
	return out
}

// listed are the entries of a mapping, none where there is no mapping.
func (v *value) listed() []entry {
	if v == nil {
		return nil
	}
	return v.entries
}

func (l *loader) checkSpare(s *spare) {
	switch {
	case s.tree == nil:
	case s.tree.root.Type() != parser.ValueTypeVector:
		l.notVector(s.tree)
	default:
		l.checkReadingTree(s.tree, s.key)
	}
}

// renames are the labels of a reading's answers that other rules know by other
// names, from the reading's own to the other.
func (r *Reading) renames() map[string]string {
	out := map[string]string{}
	for i, as := range r.As {
		if own := r.Key[i]; own != as {
			out[own] = as
		}
	}
	return out
}

// renamed puts the labels of an expression under other names.
func renamed(e parser.Expr, names map[string]string) parser.Expr {
	for _, own := range slices.Sorted(maps.Keys(names)) {
		e = relabel(relabel(e, names[own], "$1", own), own, "", own)
	}
	return e
}

// relabel is label_replace of the whole of one label.
func relabel(e parser.Expr, dst, replacement, src string) parser.Expr {
	args := parser.Expressions{e}
	for _, s := range []string{dst, replacement, src, "(.*)"} {
		args = append(args, &parser.StringLiteral{Val: s})
	}
	return &parser.Call{Func: parser.Functions["label_replace"], Args: args}
}

func (r *Reading) publicKey() []string {
	if len(r.As) == 0 {
		return r.Key
	}
	return r.As
}

// Public is a key of the reading's answers as other rules, and a control's
// devices, know it: under the labels of As.
func (r *Reading) Public(key labels.Labels) labels.Labels {
	names := r.renames()
	if len(names) == 0 {
		return key
	}
	b := labels.NewBuilder(key)
	for own, as := range names {
		b.Set(as, key.Get(own)).Del(own)
	}
	return b.Labels()
}
