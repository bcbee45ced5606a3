package ingest

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// lookup returns the series with the labels in list, a metric name and, when its
// name is not empty, one label more. Its labels are looked at once more as they
// will stand in the store, whatever was done to the attributes before.
func (w *walk) lookup(list []labels.Label, metric string, more labels.Label) (*series, reason) {
	ls := named(list, metric, more)
	if why := w.vouch(ls, more.Name); why != fine {
		return nil, why
	}
	hash := ls.Hash()
	if s := w.cache.lookup(hash, ls); s != nil {
		return s, fine
	}
	c := w.src.channel
	if why := w.room(c); why != fine {
		w.refusedSeries, w.refusedWhy = w.refusedSeries+1, why
		return nil, why
	}
	return w.cache.make(c, hash, ls), fine
}

// vouch says why a series may not be written from this origin: a label that the
// channel sets has another value or came from elsewhere, or the node is not one
// that the channel speaks for. own is a label that the translation itself added.
func (w *walk) vouch(ls labels.Labels, own string) reason {
	st := w.src.stamp
	if st == nil {
		nodes := w.src.channel.o.Nodes
		if node := ls.Get(w.naming.node); len(nodes) > 0 && node != "" && !slices.Contains(nodes, node) {
			return foreignNode
		}
		return fine
	}
	held := 0
	why := fine
	ls.Range(func(l labels.Label) {
		i := slices.IndexFunc(st.base, func(b labels.Label) bool { return b.Name == l.Name })
		switch {
		case i >= 0 && st.base[i].Value == l.Value:
			held++
		case i >= 0:
			why = forged
		case l.Name == metricLabel, l.Name == own, l.Name == "job", l.Name == st.plane.Name && l.Value == st.plane.Value:
		case st.reserved(l.Name):
			why = forged
		}
	})
	if held != len(st.base) {
		return forged
	}
	return why
}
