package rules

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// formed is what is read in one or two forms: by the labels of the series and,
// where those do not answer, by a join with target_info.
type formed struct {
	name     string
	plan     *plan
	joined   *plan // nil: plan is all
	question question
}

func (r *Reading) formed() formed { return formed{r.Name, r.plan, r.joined, valueOf(r)} }

// keys evaluates the form that answers, each step anew (S0-130, S0-131): labels,
// and target_info where labels give nothing or something without a node, or where
// join asks for it. joins says that target_info was asked.
func (e *Evaluator) keys(ctx context.Context, f formed, ts int64, staleAfter time.Duration, join bool) (_ []KeyReading, joins bool, _ error) {
	plain, err := e.planned(ctx, f, f.plan, ts, staleAfter)
	by := e.tracker(f.plan, f.question)
	if f.joined != nil {
		by.byLabels = err == nil && by.err == nil && by.settled(f.joined.node)
	}
	if f.joined == nil || err != nil || by.err != nil || !join && by.byLabels {
		return plain, false, err
	}
	joined, err := e.planned(ctx, f, f.joined, ts, staleAfter)
	info := e.tracker(f.joined, f.question)
	if err == nil {
		err = info.err
	}
	if err != nil {
		if canceled(ctx) {
			return nil, true, err
		}
		return failedForms(plain, joined, f.joined.node, err)
	}
	return mergeForms(by, info, plain, joined, f.joined.node), true, nil
}

// planned is what one form says.
func (e *Evaluator) planned(ctx context.Context, f formed, p *plan, ts int64, staleAfter time.Duration) ([]KeyReading, error) {
	t := e.tracker(p, f.question)
	if err := e.observe(ctx, t, f.name, ts); err != nil {
		if canceled(ctx) {
			return nil, err
		}
		if out := t.failed(ts, staleAfter, err); len(out) > 0 {
			return out, nil
		}
		return nil, err
	}
	out, unread := make([]KeyReading, 0, len(t.keys)), e.unread()
	for _, k := range t.sortedKeys() {
		out = append(out, t.marked(k, t.answer(k, ts, staleAfter), unread))
	}
	return out, nil
}

// settled says whether labels alone answer: something does, and nothing that is
// there lacks its node.
func (t *tracker) settled(node string) bool {
	byNode := slices.Contains(t.plan.key, node)
	some := !t.question.value && len(t.components) > 0
	for _, k := range t.keys {
		if k.answered != t.round && k.leftOut != t.round {
			continue
		}
		if byNode && k.labels.Get(node) == "" {
			return false
		}
		some = true
	}
	for _, c := range t.components {
		if c.key != nil && t.signs(c) && c.labels.Get(node) == "" {
			return false
		}
	}
	return some
}

// mergeForms takes each key from target_info where that answers. What has its
// node by label and no target_info is read by label all the same, and a key of
// which target_info does not know all that labels do is partial: its answer may
// be low. What has no node is nobody's.
func mergeForms(by, info *tracker, plain, joined []KeyReading, node string) []KeyReading {
	out := make([]KeyReading, 0, len(joined))
	for _, j := range joined {
		j.joined = true
		i := slices.IndexFunc(plain, func(k KeyReading) bool { return labels.Equal(k.Key, j.Key) })
		if i >= 0 {
			p := plain[i]
			plain = slices.Delete(plain, i, i+1)
			switch answers := j.Valid || j.Err != ""; {
			case !answers && (p.Valid || p.Quality.Worse(j.Quality) == j.Quality):
				j = p
			case answers && !j.Partial:
				if c := by.beyond(info, j.Key); c != nil {
					j.Partial, j.Why = true, c.name()+" has no target_info"
				}
			}
		}
		out = append(out, j)
	}
	out = append(out, withNode(by.plan.key, plain, node)...)
	slices.SortFunc(out, func(a, b KeyReading) int { return labels.Compare(a.Key, b.Key) })
	return out
}

// withNode leaves out what lacks its node.
func withNode(key []string, all []KeyReading, node string) []KeyReading {
	if !slices.Contains(key, node) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(k KeyReading) bool { return k.Key.Get(node) == "" })
}

// beyond is a component of the key that answers here and gives no sign in the
// other form, nil where there is none.
func (t *tracker) beyond(other *tracker, key labels.Labels) *component {
	there := map[string]bool{}
	for _, c := range other.key(key).components {
		if other.signs(c) {
			there[c.labels.String()] = true
		}
	}
	for _, c := range t.key(key).components {
		if c.answered == t.round && !there[c.labels.String()] {
			return c
		}
	}
	return nil
}

// failedForms has every key without a value: what labels alone give beside a join
// that failed may lack a part (S0-167).
func failedForms(plain, joined []KeyReading, node string, err error) ([]KeyReading, bool, error) {
	out := joined
	for _, p := range plain {
		if slices.ContainsFunc(joined, func(j KeyReading) bool { return labels.Equal(j.Key, p.Key) }) || p.Key.Len() > 0 && p.Key.Get(node) == "" {
			continue
		}
		p.Valid, p.Value, p.Err = false, 0, err.Error()
		p.Quality = p.Quality.Worse(Stale)
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, true, err
	}
	slices.SortFunc(out, func(a, b KeyReading) int { return labels.Compare(a.Key, b.Key) })
	return out, true, nil
}
