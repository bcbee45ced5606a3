package queue

import "context"

// group lets those who wait for an fsync share one: who comes while it runs
// waits for the next, which begins after all of them have come.
type group struct {
	running chan struct{} // holds one element while a run goes on
	joining chan *run     // holds the run that newcomers wait for
}

type run struct {
	done chan struct{}
	err  error // once done is closed
}

func newGroup() group {
	g := group{make(chan struct{}, 1), make(chan *run, 1)}
	g.joining <- &run{done: make(chan struct{})}
	return g
}

// do returns what a call of f gave that began after do was called.
func (g group) do(ctx context.Context, f func() error) error {
	mine := <-g.joining
	g.joining <- mine
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case g.running <- struct{}{}:
	}
	defer func() { <-g.running }()
	select {
	case <-mine.done:
		return mine.err // by the one who ran before this one could
	default:
	}
	<-g.joining // mine: nobody but the one who runs takes it out
	g.joining <- &run{done: make(chan struct{})}
	mine.err = f()
	close(mine.done)
	return mine.err
}
