package main

import (
	"context"
	"errors"
	"time"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/store"
)

// healing is what heal remembers between two looks at the store.
type healing struct {
	told    string    // why the store takes nothing, as logged
	failed  string    // what the last try to reopen it said
	looked  time.Time // the last look that found space on the disk
	refused uint64    // store.Stats.Refused then
	full    error     // what it said since
}

// refuses says why the store takes no samples, nil while it does.
func refuses(st store.Stats) error {
	if st.Frozen != nil {
		return st.Frozen
	}
	return st.Full
}

// retryAfter is how long a sender should wait after an export that failed with
// that error: what a full disk or a store that is being opened anew takes, else
// what the receiver says.
func retryAfter(err error) time.Duration {
	for _, slow := range []error{store.ErrDiskFull, store.ErrFrozen, store.ErrClosed} {
		if errors.Is(err, slow) {
			return 30 * time.Second
		}
	}
	return 0
}

// heal brings a store back that has frozen after a failed write: it is closed
// and opened again, and only then acks resume. What was refused meanwhile, or
// while the disk was full, is stated as a time range; nothing that was acked is
// lost.
func (p *parts) heal(ctx context.Context) error {
	const look = time.Second
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
		st := p.db.Stats()
		p.tell(st)
		p.space(st, p.clk.Now())
		if st.Frozen == nil {
			p.healing.failed = ""
			continue
		}
		if err := p.db.Reopen(ctx); err != nil {
			if err.Error() != p.healing.failed && ctx.Err() == nil {
				p.healing.failed = err.Error()
				p.log.Error("the store was not reopened yet", "err", err)
			}
			continue
		}
		p.log.Info("the store was reopened")
		p.lost(api.Loss{From: st.FrozenAt, To: p.clk.Now(), Why: "points were refused: " + st.Frozen.Error()})
	}
}

// tell logs when the store begins to refuse samples, when the reason changes,
// and when it takes them again.
func (p *parts) tell(st store.Stats) {
	err := refuses(st)
	switch {
	case err == nil && p.healing.told != "":
		p.healing.told = ""
		p.log.Info("the store takes samples again")
	case errors.Is(err, store.ErrDiskFull) && p.healing.told != store.ErrDiskFull.Error():
		p.healing.told = store.ErrDiskFull.Error() // its numbers are no news
		p.log.Error("the store takes no samples", "err", err)
	case err != nil && !errors.Is(err, store.ErrDiskFull) && p.healing.told != err.Error():
		p.healing.told = err.Error()
		p.log.Error("the store takes no samples", "err", err)
	}
}

// space states, once a full disk has space again, since when samples may have
// been refused for it: the last look before. A refusal between two looks counts.
func (p *parts) space(st store.Stats, now time.Time) {
	h := &p.healing
	if st.Full != nil {
		h.full = st.Full
		if h.looked.IsZero() {
			h.looked = now
		}
		return
	}
	if st.Refused != h.refused {
		why := store.ErrDiskFull.Error()
		if h.full != nil {
			why = h.full.Error()
		}
		p.lost(api.Loss{From: h.looked, To: now, Why: "points were refused: " + why})
	}
	h.looked, h.refused, h.full = now, st.Refused, nil
}

// mostLosses bounds what the status page lists; the newest stay.
const mostLosses = 100

func (p *parts) lost(l api.Loss) {
	p.lossMu.Lock()
	defer p.lossMu.Unlock()
	p.losses = append(p.losses, l)
	if n := len(p.losses) - mostLosses; n > 0 {
		p.losses = p.losses[n:]
	}
}
