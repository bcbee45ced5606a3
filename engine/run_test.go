package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// live runs an engine on the bubble's clock until the test is done with it.
type live struct {
	*world
	ended chan error
	stop  context.CancelFunc
}

func runLive(t *testing.T, dropIns ...string) *live {
	w := bareWorld(t)
	l := &live{world: w, ended: make(chan error, 1)}
	w.restart(dropIns...)
	l.start()
	return l
}

func (l *live) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.t.Cleanup(cancel)
	go func() { l.ended <- l.eng.Run(ctx) }()
	synctest.Wait()
}

// grow stores a sample of the bubble's present, or a little beside it.
func (l *live) grow(ahead time.Duration, v float64) {
	l.t.Helper()
	l.add(power("cpu0"), float64(time.Now().Add(ahead).UnixMilli())/1000-base, v)
	synctest.Wait()
}

func (l *live) reading(name string) *engine.ReadingReport {
	for _, r := range l.eng.Report().Readings {
		if r.Name == name {
			return r
		}
	}
	return &engine.ReadingReport{}
}

// Run evaluates as soon as a sample has come, and by the rules' timers when
// none comes.
func TestRunWakesOnArrivalsAndTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t)
		time.Sleep(1300 * time.Millisecond)
		l.grow(0, 100)
		if r := l.reading("node_power"); r.TS != time.Now().UnixMilli() || r.Value != 100 {
			t.Errorf("node_power is %g, read at %d; want 100, at %d", r.Value, r.TS, time.Now().UnixMilli())
		}
		seen := map[int64]bool{}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			seen[l.reading("node_power").TS] = true
		}
		if len(seen) != 3 { // the arrival's, and two of a timer of 5 s
			t.Errorf("%d evaluations in 10 s without a sample; want 3", len(seen))
		}
		l.stop()
		if err := <-l.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Samples that came to where the engine reads, of series that nobody here saw,
// have every rule evaluated at once.
func TestRunSeesWhatCameElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t)
		time.Sleep(1300 * time.Millisecond)
		l.store(metric(t, power("cpu0")), float64(time.Now().UnixMilli())/1000-base, 100)
		l.eng.GrewAll()
		synctest.Wait()
		if r := l.reading("node_power"); r.TS != time.Now().UnixMilli() || r.Value != 100 {
			t.Errorf("node_power is %g, read at %d; want 100, at %d", r.Value, r.TS, time.Now().UnixMilli())
		}
	})
}

// A sample from a clock a little ahead is seen by the step that it causes; one
// from far ahead waits for its time.
func TestRunSeesASampleFromALittleAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t)
		time.Sleep(1300 * time.Millisecond)
		l.grow(700*time.Millisecond, 100)
		if r := l.reading("node_power"); r.Value != 100 || r.TS != time.Now().Add(700*time.Millisecond).UnixMilli() {
			t.Errorf("node_power is %g, read at %d; want 100 at the sample's time", r.Value, r.TS)
		}
		time.Sleep(1300 * time.Millisecond)
		l.grow(10*time.Second, 200)
		if r := l.reading("node_power"); r.Value != 100 {
			t.Errorf("node_power is %g; want 100", r.Value)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if r := l.reading("node_power"); r.Value != 200 {
			t.Errorf("node_power is %g 15 s later; want 200", r.Value)
		}
	})
}

// A reload is at work at once.
func TestRunTakesAReloadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t)
		l.grow(0, 100)
		time.Sleep(1300 * time.Millisecond)
		if err := l.eng.Reload(loadRules(t, "version: 1\nreadings: {twice: {key: [k8s_node_name], expr: node_power * 2}}\n"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := l.reading("twice"); r.Value != 200 {
			t.Errorf("twice is %g; want 200", r.Value)
		}
	})
}

// What a step cannot do is logged when it changes, and the engine goes on.
func TestRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t)
		l.failWith(errors.New("the disk is on fire"))
		time.Sleep(time.Minute)
		l.failWith(nil)
		l.grow(0, 100)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if r := l.reading("node_power"); r.Value != 100 {
			t.Errorf("node_power is %g; want 100", r.Value)
		}
		l.stop()
		<-l.ended
		if n := strings.Count(l.log.String(), `level=WARN msg="rule not evaluated" rule=node_power `); n != 1 {
			t.Errorf("the error was logged %d times:\n%s", n, &l.log)
		}
	})
}

// Alive is false while a query hangs, and true again after it.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld(t)
		hang, hung := make(chan struct{}), false
		l := &live{world: w, ended: make(chan error, 1)}
		l.eng = engine.New(engine.Options{
			Rules: loadRules(t), Governor: newGovernor(w), Clock: time.Now,
			Query: func(context.Context, string, int64) ([]rules.Sample, error) {
				if !hung {
					hung = true
					<-hang
				}
				return nil, nil
			},
		})
		if !l.eng.Alive() {
			t.Error("not alive before Run")
		}
		l.start()
		time.Sleep(4 * time.Second)
		if !l.eng.Alive() {
			t.Error("not alive after 4 s")
		}
		time.Sleep(2 * time.Second)
		if l.eng.Alive() {
			t.Error("alive, although nothing has moved for 6 s")
		}
		close(hang)
		synctest.Wait()
		if !l.eng.Alive() {
			t.Error("not alive again")
		}
		l.stop()
		<-l.ended
	})
}

// Each answer is a sign of life: one rule may wait for several that are slow, of a
// remote engine that is about to give up on its own.
func TestAliveWhileAnswersAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld(t)
		l := &live{world: w, ended: make(chan error, 1)}
		asked := 0
		l.eng = engine.New(engine.Options{
			Rules: loadRules(t), Governor: newGovernor(w), Clock: time.Now,
			Query: func(context.Context, string, int64) ([]rules.Sample, error) {
				asked++
				time.Sleep(3 * time.Second)
				return nil, errors.New("no answer within 3s")
			},
		})
		l.start()
		for at := range 60 {
			time.Sleep(time.Second)
			if !l.eng.Alive() {
				t.Fatalf("not alive after %d s", at+1)
			}
		}
		l.stop()
		<-l.ended
		if asked < 10 {
			t.Errorf("%d queries in a minute", asked)
		}
	})
}

// A clock that runs faster than the wall has the timers come as much sooner.
func TestRunOnAScaledClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld(t)
		start := time.Now()
		l := &live{world: w, ended: make(chan error, 1)}
		l.eng = engine.New(engine.Options{
			Rules: loadRules(t), Query: w.query, Store: w.db, Governor: newGovernor(w), Speed: 10,
			Clock: func() time.Time { return start.Add(10 * time.Since(start)) },
		})
		l.start()
		l.add(power("cpu0"), float64(start.UnixMilli())/1000-base, 100)
		time.Sleep(5*time.Second + 50*time.Millisecond)
		synctest.Wait()
		if got, want := l.reading("node_power").TS, start.Add(50*time.Second).UnixMilli(); got < want-1000 || got > want+1000 {
			t.Errorf("read last at %d; want about %d", got, want)
		}
		l.stop()
		<-l.ended
	})
}

// A rule that takes long rests between two arrivals, and meanwhile does not
// stand in the way of another. What came while it rested is evaluated after.
func TestRunRestsARuleThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bareWorld(t)
		l := &live{world: w, ended: make(chan error, 1)}
		l.eng = engine.New(engine.Options{
			Rules: loadRules(t, `
version: 1
interval: 1m
readings:
  fast: {key: [k8s_node_name], expr: max by (k8s_node_name) (fast_watts)}
  slow: {key: [k8s_node_name], expr: max by (k8s_node_name) (slow_watts)}
`),
			Query: func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
				if strings.Contains(expr, "slow_watts") {
					time.Sleep(100 * time.Millisecond)
				}
				return w.query(ctx, expr, ts)
			},
			Governor: newGovernor(w), Clock: time.Now,
		})
		l.start()
		defer func() { l.stop(); <-l.ended }()
		add := func(name string, v float64) {
			l.add(name+`{k8s_node_name="a"}`, float64(time.Now().UnixMilli())/1000-base, v)
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		add("slow_watts", 1)
		time.Sleep(250 * time.Millisecond) // evaluated, and at rest
		add("slow_watts", 2)
		add("fast_watts", 3)
		if r := l.reading("fast"); r.Value != 3 || r.TS != time.Now().UnixMilli() {
			t.Errorf("fast is %g, read %d ms ago; want 3, now", r.Value, time.Now().UnixMilli()-r.TS)
		}
		if r := l.reading("slow"); r.Value != 1 {
			t.Errorf("slow is %g; want 1, while it rests", r.Value)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if r := l.reading("slow"); r.Value != 2 {
			t.Errorf("slow is %g; want 2, after its rest", r.Value)
		}
	})
}

// Everything may be called at any time from any goroutine.
func TestConcurrentUse(t *testing.T) {
	w := newWorld(t, enforce)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.eng.Run(ctx) }()
	var wg sync.WaitGroup
	cpu := metric(t, power("cpu0"))
	for i := range 4 {
		wg.Go(func() {
			for n := range 20 {
				w.eng.Grew(w.eng.Touched(cpu), at(float64(n)))
				_, _, _ = w.eng.Report(), w.eng.NextDue(), w.eng.Alive()
				if i == 0 {
					if err := w.eng.Reload(loadRules(t, enforce), false); err != nil {
						t.Error(err)
					}
				}
				if i == 1 {
					if _, err := w.eng.Step(context.Background(), time.Now().UnixMilli()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Live, nothing is decided on an input that is older than the engine: one that
// was killed between a write and what it stores of it must not be followed by
// one that engages anew on what was sent before (P8).
func TestRunDecidesOnNewInputAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce = "version: 1\ncontrols: {node_power_budget: {mode: enforce, engage: {for: 0s}}}\n"
		l := &live{world: bareWorld(t), ended: make(chan error, 1)}
		l.grow(0, 600)
		l.restart(atOnce)
		time.Sleep(time.Second)
		l.start()
		time.Sleep(20 * time.Second) // the input is fresh by its age all the while
		c := control(t, l.eng.Report(), "node_power_budget")
		if c.Quality != rules.Fresh || c.Phase != engine.Idle || !strings.Contains(c.Why, "newer than the start") {
			t.Errorf("%s, input %s, why %q; want idle, fresh, waiting", c.Phase, c.Quality, c.Why)
		}
		l.grow(0, 600)
		time.Sleep(time.Second)
		if c := control(t, l.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged {
			t.Errorf("%s after an input of its own time; want engaged", c.Phase)
		}
		l.stop()
		<-l.ended
	})
}

// A clock that is set back takes the start of the engine with it: a key that
// comes later must not wait for input until the old time is reached again.
func TestRunStartFollowsTheClockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLive(t, "version: 1\ncontrols: {node_power_budget: {mode: enforce, engage: {for: 0s}}}\n")
		l.stop()
		<-l.ended
		back := time.Now().Add(-10 * time.Minute).UnixMilli()
		if _, err := l.eng.Step(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		for s := int64(1); s <= 5; s++ {
			at := back + s*1000
			l.add(power("cpu0"), float64(at)/1000-base, 600)
			if _, err := l.eng.Step(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		if c := control(t, l.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged {
			t.Errorf("%s, why %q; want engaged on the input of the new time", c.Phase, c.Why)
		}
	})
}
