package ingest

import (
	"fmt"
	"strings"
)

// Result says what became of the points of one request.
// Accepted + Folded + Rejected is the number of points in the request.
type Result struct {
	// Accepted points are readable as samples. A point that was stored before
	// with the same value is accepted again.
	Accepted int64
	// Folded points are delta points whose value is in the running sum, or was
	// there already because the point is a retry, without a sample of their own.
	Folded int64
	// Rejected points are not stored. The sender must not repeat them.
	Rejected int64
	// Message names the first three reasons, each with one example, and is empty
	// when nothing was rejected.
	Message string
	// ByReason counts the rejected points by reason, in the words of
	// wattloop_ingest_points_total. It is nil when nothing was rejected.
	ByReason map[string]int64
}

// DecodeError says that a request cannot be read: the sender must not repeat
// it. It is HTTP 400 and gRPC INVALID_ARGUMENT.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return e.Err.Error() }
func (e *DecodeError) Unwrap() error { return e.Err }

// UnavailableError says that a request was not stored, or not made durable: the
// sender should repeat it, since a sample that is already there is accepted
// again. It is HTTP 503 and gRPC UNAVAILABLE.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

func undecodable(format string, args ...any) error {
	return &DecodeError{fmt.Errorf("otlp: "+format, args...)}
}

// reason is why a point is not stored. 0 means that nothing is wrong.
type reason uint8

const (
	fine reason = iota
	badTime
	future
	tooOld
	outOfOrder
	duplicate
	noValue
	notFinite
	negative
	badTemporality
	badHistogram
	invalidUTF8
	badText
	badName
	badLabel
	labelLimit
	labelCollision
	nameCollision
	reservedName
	foreignNode
	forged
	beforeActivation
	badScale
	badBuckets
	countMismatch
	bucketLimit
	badSummary
	pointsLimit
	seriesLimit
	newSeriesLimit
	unavailable // for the metric alone: the whole request failed, and no Result has it
	numReasons
)

// reasonWords holds, for each reason, its name in metrics and Result.ByReason
// and what the sender reads.
var reasonWords = [numReasons]struct{ name, text string }{
	badTime:          {"bad_time", "the time is 0 or beyond the year 2262"},
	future:           {"future", "the time is too far ahead of the receiver's clock"},
	tooOld:           {"too_old", "the time is older than the out-of-order window"},
	outOfOrder:       {"out_of_order", "the time is before what its series already covers"},
	duplicate:        {"duplicate", "its series has another value at that time"},
	noValue:          {"no_value", "the point carries no number"},
	notFinite:        {"not_finite", "NaN and infinity are for gauges only"},
	negative:         {"negative", "a power or a monotonic sum is below zero"},
	badTemporality:   {"bad_temporality", "the temporality is neither delta nor cumulative"},
	badHistogram:     {"bad_histogram", "the bounds are not in ascending order"},
	invalidUTF8:      {"invalid_utf8", "a name or an attribute is not valid UTF-8"},
	badText:          {"bad_text", "a control or text-direction character in a name or an attribute"},
	badName:          {"bad_name", "the metric name is empty, longer than 256 bytes, or has no letter"},
	badLabel:         {"bad_label", "an attribute name that gives no label name"},
	labelLimit:       {"label_limit", "more than 64 labels, a label name over 128 bytes, or a value over 1 KiB"},
	labelCollision:   {"label_collision", "two attributes give one label"},
	nameCollision:    {"name_collision", "another metric of this request gives the same series"},
	reservedName:     {"reserved_name", "the stored name is reserved"},
	foreignNode:      {"foreign_node", "the channel does not take k8s.node.name of this value"},
	forged:           {"forged", "an attribute would stand in a label that the channel sets"},
	beforeActivation: {"before_activation", "its interval ends before the actor's own work begins"},
	badScale:         {"bad_scale", "the scale of an exponential histogram is below -4"},
	badBuckets:       {"bad_buckets", "a bucket of an exponential histogram lies where no number does, or the zero threshold is no width"},
	countMismatch:    {"count_mismatch", "the counts of the buckets do not add up to the count"},
	bucketLimit:      {"bucket_limit", "more than 1024 buckets on a side, or quantiles; or more than 2097152 in one request"},
	badSummary:       {"bad_summary", "a quantile comes twice, or is not between 0 and 1"},
	pointsLimit:      {"points_limit", "more than 50000 points in one request"},
	seriesLimit:      {"series_limit", "no more new series: the limit of series is reached"},
	newSeriesLimit:   {"new_series_limit", "too many new series in a minute: send attributes with fewer values"},
	unavailable:      {"unavailable", "the store took no samples"},
}

func (r reason) String() string { return reasonWords[r].name }

// tally counts what becomes of the points of one request.
type tally struct {
	accepted, folded int64
	refused          int64 // of all reasons
	rejected         [numReasons]int64
	windows          [numWindows]int64
	order            []reason // in the order of their first point
	examples         []string // beside order, at most three
}

func (t *tally) reset() {
	*t = tally{order: t.order[:0], examples: t.examples[:0]}
}

// reject counts n points. metric names one of them; what, which may be empty,
// replaces the reason's own text.
func (t *tally) reject(why reason, n int64, metric, what string) {
	if t.rejected[why] == 0 {
		t.order = append(t.order, why)
		if len(t.examples) < 3 {
			if what == "" {
				what = reasonWords[why].text
			}
			t.examples = append(t.examples, fmt.Sprintf("metric %s: %s", excerpt(metric), what))
		}
	}
	t.rejected[why] += n
	t.refused += n
}

func (t *tally) result() Result {
	res := Result{Accepted: t.accepted, Folded: t.folded}
	if len(t.order) == 0 {
		return res
	}
	res.ByReason = make(map[string]int64, len(t.order))
	for _, why := range t.order {
		res.ByReason[why.String()] = t.rejected[why]
		res.Rejected += t.rejected[why]
	}
	var b strings.Builder
	for i, example := range t.examples {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%d %s (%s)", t.rejected[t.order[i]], t.order[i], example)
	}
	if more := len(t.order) - len(t.examples); more > 0 {
		fmt.Fprintf(&b, "; and %d reasons more", more)
	}
	res.Message = b.String()
	return res
}

// excerpt quotes the head of a name that a sender chose, so that an answer
// never carries more than 64 bytes of it.
func excerpt(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "..."
	}
	return fmt.Sprintf("%+q", s)
}
