package rules

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/wattloop/wattloop/internal/nearest"
)

// maxExpression bounds one expression as written, in bytes.
const maxExpression = 16 << 10

// expression is PromQL as a file holds it.
type expression struct {
	rule string
	at   *value
	text string          // as written
	uses map[string]bool // the parameters in it
	// patched is true once a stand-in went in for a parameter that cannot be used.
	patched bool
}

// tree is an expression parsed under one set of parameters.
type tree struct {
	*expression
	root   parser.Expr
	pieces []piece
}

// place maps a range of the parsed text to the file.
func (t *tree) place(r posrange.PositionRange) place {
	start := written(t.pieces, int(r.Start), false)
	end := written(t.pieces, int(r.End), true)
	return t.at.within(start, max(start, end))
}

// expression takes a value of a file as PromQL; nil when it cannot be any.
func (l *loader) expression(rule string, v *value, name string) *expression {
	if v == nil || v.broken {
		return nil
	}
	if len(v.text) > maxExpression {
		l.errorf(rule, v.at(), "%s is longer than %d bytes", name, maxExpression)
		return nil
	}
	return &expression{rule: rule, at: v, text: v.text, uses: map[string]bool{}}
}

// parse reads an expression with the parameters of e put in. It returns nil
// after it has reported every error.
func (l *loader) parse(x *expression, e env) *tree {
	if x == nil {
		return nil
	}
	text, pieces := l.substitute(x, e)
	t := &tree{expression: x, pieces: pieces}
	root, err := dialect.ParseExpr(text)
	if err == nil {
		t.root = root
		return t
	}
	var all parser.ParseErrors
	if !errors.As(err, &all) {
		l.errorf(x.rule, x.at.at(), "%s", err)
		return nil
	}
	for _, e := range rootCauses(all) {
		suggestion := ""
		if name, ok := strings.CutPrefix(e.Err.Error(), "unknown function with name "); ok {
			suggestion = nearest.Of(strings.Trim(name, `"`), functionNames)
		}
		l.add(SeverityError, x.rule, t.place(e.PositionRange), suggestion, "%s", e.Err)
	}
	return nil
}

var functionNames = slices.Sorted(maps.Keys(withCovered(parser.Functions)))

// rootCauses leaves out what the parser only says because of an earlier syntax
// error, such as missing arguments where it had to skip them. Errors of type are
// independent of each other.
func rootCauses(all parser.ParseErrors) parser.ParseErrors {
	for _, e := range all {
		if strings.HasPrefix(e.Err.Error(), "unexpected ") {
			return all[:1]
		}
	}
	return all
}
