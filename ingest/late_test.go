package ingest

import (
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/storage"
)

// What is kept of a series answers as the store does, whatever comes in whatever
// order, and says so where it does not know.
func TestLateAnswersAsTheStore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 2000 {
		truth := map[int64]float64{}
		s := series{inOrder: true, newest: rnd.Int64N(50), value: -1}
		for range rnd.IntN(5) { // from before
			truth[rnd.Int64N(s.newest+1)] = 7
		}
		truth[s.newest] = s.value
		for range 60 {
			at := rnd.Int64N(100)
			v, found, sure := s.holds().at(at)
			want, there := truth[at]
			if sure && (found != there || found && v != want) {
				t.Fatalf("at %d: %g, %t; the store holds %g, %t", at, v, found, want, there)
			}
			if sure {
				known++
			}
			switch {
			case there:
				s.late.put(at, want)
			case rnd.IntN(2) == 0:
				truth[at] = float64(at)
				s.late.put(at, float64(at))
			}
			if len(s.late.list) > maxFacts {
				t.Fatalf("%d facts; want at most %d", len(s.late.list), maxFacts)
			}
		}
	}
	if known < 40_000 {
		t.Errorf("%d of 120,000 questions were answered; want most", known)
	}
}

// asked counts what the store is asked for.
type asked struct {
	storage.Queryable
	n int
}

func (a *asked) Querier(mint, maxt int64) (storage.Querier, error) {
	a.n++
	return a.Queryable.Querier(mint, maxt)
}

// Two senders of one series whose clocks lie apart are late by turns. The store is
// asked at the first late sample, not at each of them; a second value is found out
// as ever.
func TestLateSendersAskOnce(t *testing.T) {
	b := newBed(t, nil)
	store := &asked{Queryable: b.db}
	b.r.o.Queryable = store
	b.at(1000)
	take := func(at int64, v float64, accepted, rejected int64) {
		t.Helper()
		p := newPayload()
		p.gauge("hw.power", "W", at, v)
		res, err := b.r.Export(t.Context(), wireOf(t, p.md))
		if err != nil || res.Accepted != accepted || res.Rejected != rejected {
			t.Fatalf("at %d: %+v, %v; want %d accepted, %d rejected", at, res, err, accepted, rejected)
		}
	}
	for i := range int64(10) {
		take(100_000+i*5000, float64(i), 1, 0)
		take(98_000+i*5000, float64(i), 1, 0)
	}
	if store.n > 2 {
		t.Errorf("the store was asked %d times for 10 late samples; want once or twice", store.n)
	}
	before := store.n
	take(123_000, 99, 0, 1) // another value stands there
	take(123_000, 5, 1, 0)  // the very same does
	if store.n != before {
		t.Errorf("the store was asked %d times for what is known", store.n-before)
	}
	take(90_000, 1, 1, 0) // before all that is known
	if store.n != before+1 {
		t.Errorf("the store was asked %d times for what is not known; want once", store.n-before)
	}
}
