package ingest

import "fmt"

// Open returns a receiver whose running sums outlive the process, in
// Options.StateDir. What an earlier process left there is read first; it is an
// error when the folder cannot be used, or was written by a newer version.
// Without a StateDir it is NewReceiver.
func Open(o Options) (*Receiver, error) {
	r := NewReceiver(o)
	if o.StateDir == "" {
		return r, nil
	}
	j, err := openJournal(o.StateDir, o.StateSync, r.o.Logger, &r.metrics.state)
	if err != nil {
		return nil, fmt.Errorf("running sums: %w", err)
	}
	a := &r.w.sums
	if r.damage, err = j.load(a); err != nil {
		return nil, fmt.Errorf("running sums: %w", joinClose(err, j))
	}
	// Every start begins anew: with a snapshot, and a log that no other process
	// wrote to. A disk that takes none is not the end; points of delta streams are
	// then refused until it does.
	now := r.o.Clock().UnixMilli()
	if r.damage != "" {
		a.blind = max(a.blind, now)
	}
	for _, s := range a.sums {
		for ; s != nil; s = s.same {
			s.used = min(max(s.used, now-forgetAfter), now)
		}
	}
	for _, s := range a.streams {
		s.used = min(max(s.used, now-forgetAfter), now)
	}
	a.journal = j
	if err := j.renew(a.snapshot()); err != nil {
		j.behind = true
		j.tell(err)
	}
	return r, nil
}

func joinClose(err error, j *journal) error {
	if closing := j.close(); closing != nil {
		return fmt.Errorf("%w; and %w", err, closing)
	}
	return err
}

// Close ends the keeping of running sums. No request may be under way, and none
// may come.
func (r *Receiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.sums.journal == nil {
		return nil
	}
	return r.w.sums.journal.close()
}

// StateError says why the running sums cannot be written, and so what would change
// them is refused; nil while they can.
func (r *Receiver) StateError() error {
	j := r.w.sums.journal
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.told
}

// StateDamage says what of the running sums could not be read at the start, and
// is empty when all could. Sums that are missing go on from what is stored; what
// is lost is the memory by which a retry of something older is recognised.
func (r *Receiver) StateDamage() string { return r.damage }

// keep writes what the request at hand has changed to the journal, before the
// store commits it.
func (w *walk) keep() error {
	if w.elsewhere != nil {
		if err := w.elsewhere(); err != nil {
			return err
		}
	}
	j := w.sums.journal
	if j == nil || len(w.savedTotals)+len(w.savedPasts) == 0 {
		return nil
	}
	w.owes = true
	if j.skip {
		return nil
	}
	if j.broken() {
		// What the broken log holds may have been refused since: a snapshot knows,
		// this request's changes among the rest.
		w.kept = true
		return j.renewNow(w.now, w.sums.snapshot)
	}
	b, at := beginRecord(j.buf[:0])
	b = w.changes(b)
	j.buf = b
	if len(b) == at+recordHeader {
		return nil
	}
	endRecord(b, at)
	w.kept = true
	err := j.write(b)
	if err != nil {
		j.tell(err)
	}
	return err
}

// refused says that the store did not take what the request at hand has kept. The
// journal is ahead of memory then; should the process die now, the sender's
// repetition is recognised as one.
func (w *walk) refused() {
	if w.kept {
		w.sums.journal.behind = true
	}
}

// debt is what remains to be done for a request once the Receiver's lock is free.
type debt struct {
	owes     bool // the ack waits for the journal
	number   uint64
	snapshot []byte
}

func (w *walk) debt() debt {
	d := debt{owes: w.owes}
	if w.kept {
		if d.number = w.sums.journal.grown(); d.number != 0 {
			d.snapshot = w.sums.snapshot()
		}
	}
	return d
}

// settle waits until the journal is as durable as an ack wants it.
func (r *Receiver) settle(d debt) error {
	j := r.w.sums.journal // set once, before the first request
	if d.number != 0 {
		j.finish(d.number, d.snapshot)
	}
	if !d.owes {
		return nil
	}
	err := j.await()
	if err != nil {
		j.tell(err)
	}
	return err
}
