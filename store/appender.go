package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Appender takes samples; end it with Commit or Rollback, since Reopen and
// Close wait for that. While the store is frozen, closed or short of space it
// refuses each of them with ErrFrozen, ErrClosed or ErrDiskFull. A Commit that
// fails freezes the store. A commit is durable when the next Sync returns.
//
// Series refs are good for one open TSDB. A ref from before a Reopen is known
// as such and its series looked up by the labels, so always pass those too.
func (db *DB) Appender(ctx context.Context) storage.Appender {
	if err := db.frozenErr(); err != nil {
		return refusal{err}
	}
	if err := db.checkSpace(); err != nil {
		db.noSpace.Add(1)
		return refusal{err}
	}
	s, leave, err := db.enter(nil)
	if err != nil {
		return refusal{err}
	}
	a := &appender{Appender: s.tsdb.Appender(ctx), db: db, tag: newRefTag(s.gen), leave: leave}
	if db.committed.Load() != nil {
		a.batch = batches.Get().(*Batch)
	}
	return a
}

// refTag is a number of the session in the bits of a ref that the TSDB leaves
// free: it numbers series with 40 bits. It is never 0, which no session is.
type refTag uint64

const refBits = 48

func newRefTag(gen uint64) refTag { return refTag(gen%(1<<(64-refBits)-1)+1) << refBits }

func (t refTag) add(ref storage.SeriesRef) storage.SeriesRef {
	if ref == 0 {
		return 0
	}
	return ref | storage.SeriesRef(t)
}

func (t refTag) remove(ref storage.SeriesRef) storage.SeriesRef {
	if ref>>refBits<<refBits != storage.SeriesRef(t) {
		return 0
	}
	return ref &^ storage.SeriesRef(t)
}

type appender struct {
	storage.Appender
	db    *DB
	tag   refTag
	leave func()
	batch *Batch // nil: nobody wants to know
}

var _ storage.GetRef = (*appender)(nil)

func (a *appender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	ref, err := a.Appender.Append(a.tag.remove(ref), l, t, v)
	ref = a.tag.add(ref)
	a.keep(Stored{Ref: ref, Labels: l, T: t, V: v}, err)
	return ref, err
}

func (a *appender) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendHistogram(a.tag.remove(ref), l, t, h, fh)
	ref = a.tag.add(ref)
	a.keep(Stored{Ref: ref, Labels: l, T: t, H: h, FH: fh}, err)
	return ref, err
}

func (a *appender) AppendSTZeroSample(ref storage.SeriesRef, l labels.Labels, t, st int64) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendSTZeroSample(a.tag.remove(ref), l, t, st)
	ref = a.tag.add(ref)
	a.keep(Stored{Ref: ref, Labels: l, T: st}, err)
	return ref, err
}

func (a *appender) AppendHistogramSTZeroSample(ref storage.SeriesRef, l labels.Labels, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendHistogramSTZeroSample(a.tag.remove(ref), l, t, st, h, fh)
	ref = a.tag.add(ref)
	if a.batch != nil {
		zero, floats := empty(h, fh)
		a.keep(Stored{Ref: ref, Labels: l, T: st, H: zero, FH: floats}, err)
	}
	return ref, err
}

func (a *appender) AppendExemplar(ref storage.SeriesRef, l labels.Labels, e exemplar.Exemplar) (storage.SeriesRef, error) {
	ref, err := a.Appender.AppendExemplar(a.tag.remove(ref), l, e)
	ref = a.tag.add(ref)
	if a.batch != nil {
		kept := e
		a.keep(Stored{Ref: ref, Labels: l, Exemplar: &kept}, err)
	}
	return ref, err
}

func (a *appender) UpdateMetadata(ref storage.SeriesRef, l labels.Labels, m metadata.Metadata) (storage.SeriesRef, error) {
	ref, err := a.Appender.UpdateMetadata(a.tag.remove(ref), l, m)
	return a.tag.add(ref), err
}

// GetRef gives the ref of a series that is in the head, and the head's own copy
// of its labels.
func (a *appender) GetRef(ls labels.Labels, hash uint64) (storage.SeriesRef, labels.Labels) {
	g, ok := a.Appender.(storage.GetRef)
	if !ok {
		return 0, labels.EmptyLabels()
	}
	ref, ls := g.GetRef(ls, hash)
	return a.tag.add(ref), ls
}

// Commit writes to the log. An appender that is older than a failed write is
// rolled back: what stands behind a torn record in the log is lost.
func (a *appender) Commit() error {
	defer a.leave()
	defer a.free()
	a.db.commitMu.Lock()
	defer a.db.commitMu.Unlock()
	if err := a.db.frozenErr(); err != nil {
		return errors.Join(err, a.Appender.Rollback())
	}
	err := a.Appender.Commit()
	if err == nil {
		a.tell()
	}
	if err == nil || errors.Is(err, tsdb.ErrAppenderClosed) {
		return err
	}
	return a.db.freeze(fmt.Errorf("commit: %w", err), false)
}

func (a *appender) Rollback() error {
	defer a.leave()
	defer a.free()
	return a.Appender.Rollback()
}

// refusal is the appender of a store that takes no samples.
type refusal struct{ err error }

func (r refusal) Append(storage.SeriesRef, labels.Labels, int64, float64) (storage.SeriesRef, error) {
	return 0, r.err
}

func (r refusal) AppendHistogram(storage.SeriesRef, labels.Labels, int64, *histogram.Histogram, *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, r.err
}

func (r refusal) AppendSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64) (storage.SeriesRef, error) {
	return 0, r.err
}

func (r refusal) AppendHistogramSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64, *histogram.Histogram, *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, r.err
}

func (r refusal) AppendExemplar(storage.SeriesRef, labels.Labels, exemplar.Exemplar) (storage.SeriesRef, error) {
	return 0, r.err
}

func (r refusal) UpdateMetadata(storage.SeriesRef, labels.Labels, metadata.Metadata) (storage.SeriesRef, error) {
	return 0, r.err
}

func (refusal) SetOptions(*storage.AppendOptions) {}
func (r refusal) Commit() error                   { return r.err }
func (refusal) Rollback() error                   { return nil }
