package store

import (
	"sync"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// Batch is what one commit stored, in the order in which it was appended. It is
// its reader's for the time of a call.
type Batch []Stored

// Stored is one sample, or one exemplar, of a batch. A TSDB drops some samples in
// silence as it commits them, those out of order among them: they are here too.
type Stored struct {
	Ref      storage.SeriesRef // of one series the same while this store is open, of two never
	Labels   labels.Labels
	T        int64 // Unix milliseconds
	V        float64
	H        *histogram.Histogram      // in place of V
	FH       *histogram.FloatHistogram // in place of V
	Exemplar *exemplar.Exemplar        // in place of a sample
}

// OnCommit has f called after each commit, one at a time and in the order of the
// commits; nil ends that. f must not block: who commits waits for it.
func (db *DB) OnCommit(f func(Batch)) {
	if f == nil {
		db.committed.Store(nil)
		return
	}
	db.committed.Store(&f)
}

// batches are kept for their memory.
var batches = sync.Pool{New: func() any { return new(Batch) }}

// maxBatch is the longest batch whose memory is kept.
const maxBatch = 64 << 10

// keep notes what was appended, if anybody wants to know of it.
func (a *appender) keep(s Stored, err error) {
	if err == nil && a.batch != nil {
		*a.batch = append(*a.batch, s)
	}
}

// tell hands the batch over, after a commit.
func (a *appender) tell() {
	if f := a.db.committed.Load(); f != nil && a.batch != nil && len(*a.batch) > 0 {
		(*f)(*a.batch)
	}
}

// free gives the batch back.
func (a *appender) free() {
	b := a.batch
	if a.batch = nil; b == nil || cap(*b) > maxBatch {
		return
	}
	clear(*b)
	*b = (*b)[:0]
	batches.Put(b)
}

// empty is what a TSDB stores at the start of a histogram.
func empty(h *histogram.Histogram, fh *histogram.FloatHistogram) (*histogram.Histogram, *histogram.FloatHistogram) {
	if h != nil {
		return &histogram.Histogram{Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, CustomValues: h.CustomValues}, nil
	}
	return nil, &histogram.FloatHistogram{Schema: fh.Schema, ZeroThreshold: fh.ZeroThreshold, CustomValues: fh.CustomValues}
}
