package ingest

import "sync/atomic"

// admission bounds the bytes of the requests that are being worked on at once,
// over all transports of a Server. Beyond its limit a request is turned away
// with an answer that asks for a repeat, so that a burst costs senders time and
// never costs the process its memory. Safe for concurrent use.
type admission struct {
	limit int64
	held  atomic.Int64
}

// take reserves n bytes, or reserves nothing and reports false.
func (a *admission) take(n int64) bool {
	if a.held.Add(n) <= a.limit {
		return true
	}
	a.held.Add(-n)
	return false
}

// give returns n bytes that take reserved.
func (a *admission) give(n int64) { a.held.Add(-n) }
