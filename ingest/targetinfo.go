package ingest

import (
	"cmp"
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

const targetInfoName = "target_info"

// maxWrote is how many times of a target_info series are remembered: at one
// every 2.5 min they reach past the out-of-order window.
const maxWrote = 32

// targetInfo finds the series that carries the attributes of a resource. There is
// none, as in Prometheus, when nothing but the identity is known, or when neither
// job nor instance is. An attribute that cannot be a label, or shares its label
// with another, is left out; a promoted one stands.
func (w *walk) targetInfo(r *resource, attrs []attribute) {
	list := slices.Clone(r.base)
	values := map[string]string{} // empty for a label that two attributes want
	others := false
	if st := w.src.stamp; st != nil {
		// What else a workload says of itself has as many values as it likes.
		attrs = []attribute{{st.prefix + "." + attrPlane, planeActor, true}}
	}
	for _, a := range attrs {
		if a.key == serviceName || a.key == serviceNamespace || a.key == serviceInstance {
			continue
		}
		others = true
		l, why := w.naming.translate(a)
		if why != fine || l.Name == "" || has(list, l.Name) {
			continue
		}
		if _, twice := values[l.Name]; twice {
			l.Value = ""
		}
		values[l.Name] = l.Value
	}
	var more []labels.Label
	for name, value := range values {
		if value != "" {
			more = append(more, labels.Label{Name: name, Value: value})
		}
	}
	slices.SortFunc(more, func(a, b labels.Label) int { return cmp.Compare(a.Name, b.Name) })
	list = append(list, more[:min(len(more), max(0, maxLabels-len(list)))]...)
	if others && (has(list, "job") || has(list, "instance")) {
		r.info, _ = w.lookup(list, targetInfoName, noLabel)
	}
}

// writeTargetInfo puts a 1 at t, unless one was written less than half the
// lookback before it. It is the receiver's own series: what becomes of it is in
// nobody's count.
func (w *walk) writeTargetInfo(ctx context.Context, app storage.Appender, s *series, t int64) error {
	half := w.o.Lookback.Milliseconds() / 2
	var wrote []int64
	if s.wrote != nil {
		wrote = *s.wrote
	}
	at, exact := slices.BinarySearch(wrote, t)
	if exact || at > 0 && t-wrote[at-1] < half {
		return nil
	}
	w.open(s)
	w.infos = append(w.infos, s)
	w.samples = append(w.samples, sample{s: s, t: t, v: 1})
	why, err := w.appendSamples(ctx, app, w.samples[len(w.samples)-1:])
	if err != nil || why != fine {
		return err
	}
	if at == 0 && len(wrote) == maxWrote {
		return nil
	}
	now := slices.Insert(wrote, at, t)
	if len(now) > maxWrote {
		now = slices.Delete(now, 0, 1)
	}
	s.wrote = &now
	return nil
}
