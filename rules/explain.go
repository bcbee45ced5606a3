package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Field is one thing that a rule says, and the place that says it. File is
// empty for a default, and "settings" for a value of the configuration.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
}

// Origin is where the field was set: file:line, settings, or default.
func (f Field) Origin() string {
	switch {
	case f.File == "":
		return "default"
	case f.Line == 0:
		return f.File
	}
	return f.File + ":" + strconv.Itoa(f.Line)
}

// Query is an expression exactly as it runs, and what it is for.
type Query struct {
	Name string `json:"name"` // "query" of a reading; "engage", "release", "value" of a control
	Expr string `json:"expr"`
	// Words is the expression as the files have it, readings and parameters put
	// in: before rate( is read, and without the matcher of the trusted channels.
	Words string `json:"words"`
	// Form says where a query with two forms finds the node of a series: "labels"
	// or "target_info". The second is asked where the first does not answer.
	Form string `json:"form,omitempty"`
}

// explain is the one or two forms of an expression.
func explain(name string, forms ...*plan) []Query {
	var out []Query
	for _, p := range forms {
		if p != nil {
			out = append(out, Query{name, p.query, p.words, p.form})
		}
	}
	return out
}

// Title is the query's name and its form.
func (q Query) Title() string {
	if q.Form == "" {
		return q.Name
	}
	return q.Name + ", by " + q.Form
}

// Explanation is all that is known of a rule before it runs.
type Explanation struct {
	Kind     string   `json:"kind"` // "reading" or "control"
	Name     string   `json:"name"`
	Variant  string   `json:"variant,omitempty"`  // of a reading that has some, the one that is used
	Variants []string `json:"variants,omitempty"` // all of them
	Note     string   `json:"note,omitempty"`     // what to know of a reading's answers
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Fields   []Field  `json:"fields"`
	Params   []Field  `json:"params"`  // what the queries were expanded with
	Queries  []Query  `json:"queries"` // what runs
	// Uses are the readings that a control's expressions name, expanded with the
	// parameters that the control sets.
	Uses []Explanation `json:"uses,omitempty"`
}

// Explain tells what runs for a reading, and where each of its words comes from.
func (r *Reading) Explain() Explanation {
	fields := slices.Clone(r.origins)
	fields = defaults(fields, []Field{
		{Name: "rate", Value: r.Rate},
		{Name: "interval", Value: formatDuration(r.Interval)},
		{Name: "forget_after", Value: formatDuration(r.ForgetAfter)},
		{Name: "stale_after", Value: staleAfter(r.StaleAfter == 0)},
	})
	return Explanation{
		Kind: "reading", Name: r.Name, Variant: r.Variant, Variants: slices.Clone(r.Variants), Note: r.Note, File: r.File, Line: r.Line,
		Fields: fields, Params: slices.Clone(r.params), Queries: explain("query", r.plan, r.joined),
	}
}

// origins leaves out the fields of the variants that are not used, and says who
// chose.
func (c chosen) origins(all []Field) []Field {
	if c.name == "" {
		return all
	}
	if c.bySettings {
		all = append(slices.DeleteFunc(all, func(f Field) bool { return f.Name == "use" }), Field{Name: "use", Value: c.name, File: settingsFile})
	}
	return slices.DeleteFunc(all, func(f Field) bool {
		rest, ok := strings.CutPrefix(f.Name, "variants.")
		return ok && !strings.HasPrefix(rest, c.name+".")
	})
}

// Explain tells what runs for a control, and where each of its words comes from.
func (c *Control) Explain() Explanation {
	fields := slices.Clone(c.origins)
	fields = defaults(fields, []Field{
		{Name: "mode", Value: string(c.Mode)},
		{Name: "engage.for", Value: formatDuration(c.Engage.For)},
		{Name: "release.for", Value: formatDuration(c.Release.For)},
		{Name: "interval", Value: formatDuration(c.Interval)},
		{Name: "stale_after", Value: staleAfter(c.StaleAfter == 0)},
		{Name: "observe_after", Value: strconv.FormatBool(c.ObserveAfter)},
		{Name: "safe_when_blind", Value: strconv.FormatBool(c.SafeWhenBlind)},
		{Name: "on_stop", Value: "restore"},
	})
	x := Explanation{
		Kind: "control", Name: c.Name, File: c.File, Line: c.Line,
		Fields: fields, Params: slices.Clone(c.params),
		Queries: slices.Concat(explain("engage", c.engage, c.joined[engageExpr]), explain("release", c.release, c.joined[releaseExpr]),
			explain("value", c.value, c.joined[valueExpr])),
	}
	for _, r := range c.Uses {
		x.Uses = append(x.Uses, r.Explain())
	}
	return x
}

func staleAfter(measured bool) string {
	if measured {
		return "3 export intervals, at least 30s"
	}
	return ""
}

// defaults adds what the files leave out.
func defaults(fields, all []Field) []Field {
	for _, d := range all {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == d.Name }) {
			fields = append(fields, d)
		}
	}
	return fields
}

// String is the explanation as text: the queries first, since they are what runs.
func (x Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s (%s:%d)\n", x.Kind, x.Name, x.File, x.Line)
	if x.Variant != "" {
		fmt.Fprintf(&b, "variant %s, of %s\n", x.Variant, strings.Join(x.Variants, ", "))
	}
	if x.Note != "" {
		fmt.Fprintf(&b, "note: %s\n", x.Note)
	}
	for _, q := range x.Queries {
		fmt.Fprintf(&b, "\n%s:\n  %s\n", q.Title(), q.Expr)
	}
	writeFields(&b, "parameters", x.Params)
	writeFields(&b, "fields", x.Fields)
	for _, u := range x.Uses {
		fmt.Fprintf(&b, "\nuses reading %s (%s:%d):\n", u.Name, u.File, u.Line)
		for _, q := range u.Queries {
			fmt.Fprintf(&b, "  %s\n", q.Expr)
		}
	}
	return b.String()
}

func writeFields(b *strings.Builder, title string, fields []Field) {
	if len(fields) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, f := range fields {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Origin(), f.Name, strings.Join(strings.Fields(f.Value), " "))
	}
	w.Flush()
}

// origins are the fields of a definition, and what its file says for all rules.
func (d *definition) origins() []Field {
	out := origins(d.body, "")
	for name, v := range map[string]*value{"rate": d.home.rate, "interval": d.home.interval} {
		if v != nil && d.get(name) == nil {
			out = append(out, Field{name, v.text, v.file.name, v.line})
		}
	}
	return out
}

// origins flattens a rule's mapping into fields: limits.min, engage.when.
func origins(v *value, prefix string) []Field {
	var out []Field
	for _, e := range v.entries {
		name := prefix + e.key.text
		switch {
		case e.value.broken:
		case e.value.kind == mapping:
			out = append(out, origins(e.value, name+".")...)
		case e.value.kind == list:
			var items []string
			for _, item := range e.value.items {
				items = append(items, item.text)
			}
			out = append(out, Field{name, "[" + strings.Join(items, ", ") + "]", e.value.file.name, e.value.line})
		default:
			out = append(out, Field{name, strings.TrimSpace(e.value.text), e.value.file.name, e.value.line})
		}
	}
	return out
}

// origins of the named parameters as this env has them, sorted by name.
func (e env) origins(names map[string]bool) []Field {
	var out []Field
	for name := range names {
		if q, ok := e.lookup(name); ok {
			out = append(out, q.origin(name))
		}
	}
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return out
}
