package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
)

// reopenEvery is how often a channel that could not be opened is tried again.
const reopenEvery = 10 * time.Second

// opening are the channels that the configuration wants open and that are not.
// They keep nothing else from running.
type opening struct {
	mu   sync.Mutex // also held while they are being opened
	left map[string]listen.Activation
}

// drop leaves a channel to whoever has activated or ended it.
func (o *opening) drop(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.left, name)
}

// openChannels opens those that need nobody to activate them, and says where each
// listens. One that cannot be opened stays closed, see reopenChannels. The error is
// one of the configuration.
func (p *parts) openChannels(ctx context.Context, stderr io.Writer) error {
	left := map[string]listen.Activation{}
	for _, c := range p.c.Channels {
		switch {
		case c.Identity != nil:
			left[c.Spec.Name] = listen.Activation{Identity: *c.Identity}
		case c.Spec.Class == ingest.Node:
			left[c.Spec.Name] = listen.Activation{}
		}
	}
	p.opening.mu.Lock()
	p.opening.left = left
	p.opening.mu.Unlock()
	return p.tryChannels(ctx, stderr)
}

// reopenChannels tries at each tick to open what is left, until ctx ends. Why it
// could not is logged when it changes, and stands in the channel's state.
func (p *parts) reopenChannels(ctx context.Context, tick <-chan time.Time, stderr io.Writer) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if err := p.tryChannels(ctx, stderr); err != nil {
			p.log.Error("channels", "err", err) // nothing that a further try could change
		}
	}
}

// tryChannels opens what is left, all at once: one self-test may take seconds.
func (p *parts) tryChannels(ctx context.Context, stderr io.Writer) error {
	p.opening.mu.Lock()
	defer p.opening.mu.Unlock()
	names := sortedKeys(p.opening.left)
	states, errs := make([]listen.State, len(names)), make([]error, len(names))
	var trying sync.WaitGroup
	for i, name := range names {
		trying.Go(func() { states[i], _, errs[i] = p.doors.Activate(ctx, name, nil, p.opening.left[name]) })
	}
	trying.Wait()
	var wrong error
	for i, name := range names {
		switch {
		case errors.Is(errs[i], listen.ErrInvalid):
			wrong = errors.Join(wrong, errs[i])
		case errors.Is(errs[i], listen.ErrConflict): // somebody has activated it for another
		case errs[i] != nil:
			continue
		}
		delete(p.opening.left, name)
		for _, a := range states[i].Listen {
			fmt.Fprintf(stderr, "listening on channel/%s=%s\n", name, a)
		}
	}
	return withCode(exitFound, wrong)
}
