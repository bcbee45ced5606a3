// Package group lets those who wait for one thing, such as an fsync, share a run of
// it.
package group

import "context"

// Group lets concurrent callers share one run of a function: whoever comes while
// it runs waits for the next run, which begins after all of them came.
type Group struct {
	lead chan struct{} // holds the one who runs
	next chan *round   // the run that newcomers join; always holds one
}

type round struct {
	done chan struct{}
	err  error // once done is closed
}

// New returns a Group in which nothing runs.
func New() Group {
	g := Group{make(chan struct{}, 1), make(chan *round, 1)}
	g.next <- &round{done: make(chan struct{})}
	return g
}

// Do returns what a run of f answered that began after Do was called, or why ctx
// ended first.
func (g Group) Do(ctx context.Context, f func() error) error {
	mine := <-g.next
	g.next <- mine
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case g.lead <- struct{}{}:
	}
	defer func() { <-g.lead }()
	select {
	case <-mine.done: // the leader before had begun no earlier than we came
		return mine.err
	default:
	}
	<-g.next // mine: only a leader replaces it, and ends it before it steps down
	g.next <- &round{done: make(chan struct{})}
	mine.err = f()
	close(mine.done)
	return mine.err
}

// Exclude keeps every run out until the returned function is called.
func (g Group) Exclude() (release func()) {
	g.lead <- struct{}{}
	return func() { <-g.lead }
}
