package ingest

// action is what becomes of one record or point of a request on its way onward.
type action uint8

const (
	actKeep  action = iota // it goes on as it is, but for its attributes
	actDrop                // it was refused, or has gone on before
	actDelta               // a cumulative point goes on as what it adds
)

// decision is what becomes of one record or point. The walk makes one for each
// point of a workload's request, in their order there.
type decision struct {
	act action
	// start, unless 0, is written in place of the point's own start; Unix
	// nanoseconds. Without it a start before the activation's is raised to that.
	start uint64
	value float64         // of a sum that is turned
	hist  *histogramDelta // of a histogram that is turned
}

// histogramDelta is what a cumulative histogram point adds to the one before.
type histogramDelta struct {
	count  uint64
	sum    float64
	hasSum bool
	counts []uint64 // of a classic one: beside the point's own bounds
	// Of an exponential one.
	scale              int32
	zero               uint64
	zeroThreshold      float64
	positive, negative exponentialBuckets
}

type exponentialBuckets struct {
	offset int32
	counts []uint64
}

// decide opens the decision of the point that the walk comes to next.
func (w *walk) decide() {
	if w.decisions != nil {
		*w.decisions = append(*w.decisions, decision{})
	}
}

// decided returns the decision that was opened last, or one that nobody reads.
func (w *walk) decided() *decision {
	if w.decisions == nil {
		w.nobody = decision{}
		return &w.nobody
	}
	list := *w.decisions
	return &list[len(list)-1]
}

// decisionOf is the index of the last decision, for decideAgain.
func (w *walk) decisionOf() int32 {
	if w.decisions == nil {
		return -1
	}
	return int32(len(*w.decisions) - 1)
}

// dropped takes back what was decided of a point that the store has refused.
func (w *walk) dropped(i int32) {
	if w.decisions != nil && i >= 0 {
		(*w.decisions)[i] = decision{act: actDrop}
	}
}
