// Package warden is the one hand on the hardware. It saves what each device
// holds before it writes to it, keeps every value of ours under a lease, clamps
// it into limits of its own, reads it back, and gives the original back when
// the lease ends, whatever has become of the engine. It knows nothing of rules,
// queries or telemetry, opens no network socket, and believes nothing that the
// engine says beyond "this value, for this device, for so long".
package warden

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// warden is the state of one process that holds the lock.
type warden struct {
	*books
	troubles
	knobs []*knob // in the order of Options.Devices
	byID  map[string]*knob
	locks []*lock
	tree  *os.File // locked; nil without Options.Tree
	dir   string   // run.path/warden
	bad   counter

	end context.CancelCauseFunc

	mu       sync.Mutex
	engine   *engine // nil while none runs
	starts   int     // of engines
	stopping bool    // no engine is wanted any more
	handed   bool    // to a successor: everything stays as it is
}

// stopLimit is how long giving everything back may take at the end, and
// engineLimit how long the engine may take to end after that.
const (
	stopLimit   = 5 * time.Second
	engineLimit = 10 * time.Second
)

// Run is the life of the warden: it gives back what an earlier run has left,
// starts the engine and keeps it running, serves it, and when ctx ends gives
// everything back and ends the engine. Run returns ErrLocked when another
// warden is at work, *ExitError when the engine could not start, and an error
// naming the devices that could not be given back in time; their originals are
// in the journal, for `caps restore` and the next start.
func Run(ctx context.Context, o Options) error {
	w, err := open(o)
	if err != nil {
		return err
	}
	defer w.close()
	now := w.opt.Clock()
	w.report("leftover", w.takeOverAll(inheritance{handover: w.intents.tokenFresh(w.boot, now), kept: true}))
	if err := w.intents.dropToken(); err != nil {
		w.opt.Log.Warn("handover token not removed", "err", err)
	}
	if err := w.prepare(); err != nil {
		return errors.Join(err, w.giveUp(nil))
	}
	ctl, err := w.listen()
	if err != nil {
		return errors.Join(err, w.giveUp(nil))
	}
	defer ctl.close()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.end = end
	looks, stopLooking := context.WithCancel(context.WithoutCancel(ctx))
	var hands, rest sync.WaitGroup
	for _, k := range w.knobs {
		hands.Go(func() { k.run(looks) })
	}
	hands.Go(func() { w.tick(looks) })
	rest.Go(ctl.serve)
	rest.Go(func() { w.supervise(ctx) })

	<-ctx.Done()
	cause := context.Cause(ctx)
	w.closing.Store(true)
	err = w.giveUp(cause)
	w.stopEngine()
	stopLooking()
	ctl.close()
	hands.Wait()
	rest.Wait()
	if w.handed {
		err = errors.Join(err, w.intents.leaveToken(w.boot, w.opt.Clock()))
	}
	return errors.Join(fatalCause(cause), err)
}

// fatalCause is the error that ended the warden, nil when it was told to end.
func fatalCause(cause error) error {
	var exit *ExitError
	if errors.As(cause, &exit) || errors.Is(cause, ErrLocked) {
		return cause
	}
	return nil
}

// open takes the locks and reads what earlier runs have left.
func open(o Options) (*warden, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	boot, err := o.BootID()
	if err != nil {
		return nil, err
	}
	state, run := filepath.Join(o.StatePath, "warden"), filepath.Join(o.RunPath, "warden")
	w := &warden{
		books: &books{opt: &o, boot: boot, intents: intents{dir: run}},
		byID:  map[string]*knob{}, dir: run,
	}
	for _, dir := range []string{run, state} {
		if err := makePrivate(dir); err != nil {
			w.close()
			return nil, err
		}
		l, err := takeLock(dir)
		if err != nil {
			w.close()
			return nil, err
		}
		w.locks = append(w.locks, l)
		if run == state {
			break
		}
	}
	if o.Tree != "" {
		if w.tree, err = takeTree(o.Tree); err != nil {
			w.close()
			return nil, err
		}
	}
	if w.latch, err = openLatch(state); err != nil {
		w.close()
		return nil, err
	}
	var damage error
	w.journal, damage = openJournal(state, o.Fault)
	if w.journal == nil {
		w.close()
		return nil, damage
	}
	for _, d := range o.Devices {
		k := newKnob(w.books, d)
		w.knobs = append(w.knobs, k)
		w.byID[k.desc.ID] = k
	}
	if damage != nil {
		w.mend(damage)
	}
	return w, nil
}

func (w *warden) close() {
	for _, l := range w.locks {
		l.drop()
	}
	if w.tree != nil {
		w.tree.Close()
	}
}

// giveUp gives every device back, all at the same time, within stopLimit. After
// a handover, or when another process has become the warden, it leaves them.
func (w *warden) giveUp(cause error) error {
	w.mu.Lock()
	handed := w.handed
	w.mu.Unlock()
	if errors.Is(cause, ErrLocked) {
		return nil
	}
	if handed {
		w.leaveStanding(w.handedOver())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	results := w.restoreEach(ctx, true)
	w.report("stop", results)
	w.leaveStanding(slices.DeleteFunc(slices.Clone(results), func(r Restored) bool { return r.Reason != actuate.ReasonHolding }))
	var errs []error
	for _, r := range results {
		if r.Result == actuate.Error {
			errs = append(errs, fmt.Errorf("warden: %s: not given back: %s", r.Device, r.Message))
		}
	}
	return errors.Join(errs...)
}

func (w *warden) leaveStanding(left []Restored) {
	if w.opt.Standing != nil {
		w.opt.Standing(left)
	}
}

// handedOver are the devices with a cap that stays for a successor.
func (w *warden) handedOver() []Restored {
	var left []Restored
	for _, s := range w.snapshots() {
		if s.Owner != "" {
			left = append(left, Restored{
				Device: s.ID, Name: s.Name, Unit: s.Unit, Value: s.Current,
				Result: actuate.Applied, Reason: actuate.ReasonHandedOver, Message: s.Owner,
			})
		}
	}
	return left
}

// restoreEach gives every device back. A device that takes longer than ctx is
// reported with its last attempt, or as failed; its knob goes on with it.
func (w *warden) restoreEach(ctx context.Context, keep bool) []Restored {
	type turn struct {
		i int
		r Restored
	}
	results := make([]Restored, len(w.knobs))
	turns := make(chan turn, len(w.knobs))
	settled := make([]bool, len(w.knobs))
	for i, k := range w.knobs {
		k.attempt.Store(nil)
		// Not waited for beyond ctx: the hand of a hanging driver cannot be stopped,
		// and every other call of the knob is bounded.
		go func() { turns <- turn{i, k.giveBackUntil(ctx, keep)} }()
	}
	for range w.knobs {
		select {
		case t := <-turns:
			results[t.i], settled[t.i] = t.r, true
		case <-ctx.Done():
			for i, k := range w.knobs {
				if !settled[i] {
					results[i] = k.lastAttempt()
				}
			}
			return results
		}
	}
	return results
}

// lastAttempt is how the last attempt to give the device back ended, where none
// has succeeded; without one, its driver hangs.
func (k *knob) lastAttempt() Restored {
	if r := k.attempt.Load(); r != nil {
		return *r
	}
	s := k.snapshot()
	return Restored{
		Device: s.ID, Name: s.Name, Unit: s.Unit, Value: s.Current, Unknown: s.Current == 0, Result: actuate.Error,
		Reason: actuate.ReasonRestoreFailed, Message: s.ID + ": the driver does not answer in time",
	}
}

// giveBackUntil tries until the original is back or ctx ends.
func (k *knob) giveBackUntil(ctx context.Context, keep bool) Restored {
	for {
		r := k.restoreNow(keep)
		k.attempt.Store(&r)
		if r.Result != actuate.Error || r.Reason == actuate.ReasonGone || ctx.Err() != nil {
			return r
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// report logs what became of devices that held something of ours.
func (w *warden) report(when string, results []Restored) {
	for _, r := range results {
		if r.Result == actuate.None && r.Reason == "" {
			continue
		}
		level := slog.LevelInfo
		if r.Result == actuate.Error {
			level = slog.LevelError
		}
		value := any(r.Value)
		if r.Unknown {
			value = "unknown"
		}
		w.opt.Log.Log(context.Background(), level, "device settled", "at", when, "device", r.Device, "value", value, "result", r.Result, "reason", r.Reason, "message", r.Message)
	}
}

// run looks at a knob at each tick, and at each of its deadlines.
func (k *knob) run(ctx context.Context) {
	for {
		k.check()
		if !k.rest(ctx, time.Now().Add(k.opt.Tick)) {
			return
		}
	}
}

// rest waits until the next tick or the knob's next deadline, whichever comes
// first. It returns false when ctx has ended.
func (k *knob) rest(ctx context.Context, tick time.Time) bool {
	for {
		left := time.Until(tick)
		if at, any := k.due(); any {
			left = min(left, k.opt.wall(at-k.opt.Clock()))
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
			return true
		case <-k.wake:
			timer.Stop() // a deadline has changed: reckon anew
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// lookLimit is how old the last look at a device may be before the warden
// itself counts as hung.
const lookLimit = 10 * time.Second

// tick is the beat of the warden as a whole: it keeps its locks, judges the
// engine, tells it what the devices hold, and says that it is alive.
func (w *warden) tick(ctx context.Context) {
	beat := time.NewTicker(w.opt.Tick)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.opt.Reload:
			w.tell(actuate.Message{Type: actuate.TypeReload})
			continue
		case <-beat.C:
		}
		w.keepLocks()
		w.judgeEngine()
		w.tellDevices(w.snapshots())
		if w.opt.Ticked != nil && w.lookedInTime() {
			w.opt.Ticked()
		}
	}
}

// keepLocks sees to it that no second warden can start. A folder that somebody
// removed is made anew; a lock that another process has taken meanwhile is the
// end of this one.
func (w *warden) keepLocks() {
	for _, l := range w.locks {
		err := l.check()
		if errors.Is(err, fs.ErrNotExist) {
			if err = makePrivate(filepath.Dir(l.path)); err == nil {
				err = l.check()
			}
		}
		if errors.Is(err, ErrLocked) {
			w.opt.Log.Error("another warden has taken over: ending, and leaving the devices to it", "err", err)
			w.end(err)
		} else {
			w.note(w.opt.Log, slog.LevelError, "lock cannot be checked: "+l.path, err)
		}
	}
}

func (w *warden) lookedInTime() bool {
	for _, k := range w.knobs {
		if time.Since(time.Unix(0, k.looked.Load())) > max(lookLimit, 3*w.opt.Tick) {
			return false
		}
	}
	return true
}

func (w *warden) snapshots() []actuate.DeviceState {
	out := make([]actuate.DeviceState, len(w.knobs))
	for i, k := range w.knobs {
		out[i] = k.snapshot()
	}
	return out
}
