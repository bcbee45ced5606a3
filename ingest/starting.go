package ingest

import "errors"

// errStarting answers before there is a store.
var errStarting = errors.New("otlp: wattloop is starting: its store is still being read: send again")

// Starting returns a receiver for the time before there is a store. It takes
// nothing: each request that may come in is answered before it is read, with
// UNAVAILABLE or 503, and is to be sent again in 5 s. The one that takes over goes
// on with its counts, see Options.After.
func Starting(o Options) *Receiver {
	o.Appendable = nowhere{}
	r := NewReceiver(o)
	r.starting = true
	return r
}
