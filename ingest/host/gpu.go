package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattloop/wattloop/sysfs"
)

// library is a vendor's, as far as it is used here: NVIDIA's, or a test's.
type library interface {
	// cards lists the devices in the library's order.
	cards() ([]card, error)
	// events are the XID errors since the last call, of those cards whose identity
	// says that they give them. It does not wait.
	events() ([]xid, error)
	close()
}

// card is one device, or one instance of a device that is divided (MIG). Its
// calls may block as long as the driver likes.
type card interface {
	identity() identity
	// ask answers one question, errNotSupported where the device does not know.
	ask(q query) (uint64, error)
	// instances are the parts of a divided device, none of another.
	instances() ([]card, error)
}

// opener loads a library.
type opener func() (library, error)

// identity is what does not change of a card.
type identity struct {
	uuid string
	name string // NVIDIA H100 80GB HBM3
	xids bool   // it gives events
}

// xid is one error event of a driver.
type xid struct {
	uuid string // of the card
	code uint64
}

var (
	// errNotSupported is "not available": no value, which is never 0.
	errNotSupported = errors.New("not supported by this device")
	// errNoLibrary is a machine without the vendor's library.
	errNoLibrary = errors.New("libnvidia-ml.so.1 is not on this machine")
	errNoAnswer  = errors.New("the driver has not answered for 2 s")
)

// patience is how long a poll waits for a driver. What comes later is dropped,
// and until it has come nothing more is asked.
const patience = 2 * time.Second

// worker runs one call at a time beside its caller, who does not wait for ever:
// a call into a driver that hangs never returns.
type worker[T any] struct{ out chan T } // nil while nothing runs

// begin starts the call, but not while an earlier one has not returned; what
// that one says in the end is dropped.
func (w *worker[T]) begin(call func() T) bool {
	if w.out != nil {
		select {
		case <-w.out:
		default:
			return false
		}
	}
	out := make(chan T, 1)
	w.out = out
	go func() { out <- call() }()
	return true
}

// wait gives what the call says, unless ctx ends first.
func (w *worker[T]) wait(ctx context.Context) (v T, ok bool) {
	select {
	case v = <-w.out:
	case <-ctx.Done():
		select { // what has come beside the end of the time counts
		case v = <-w.out:
		default:
			return v, false
		}
	}
	w.out = nil
	return v, true
}

// gpus are the cards behind NVIDIA's library.
type gpus struct {
	open   opener
	fs     *sysfs.FS
	ledger *ledger

	lib     library
	why     error // why there is no library
	loading worker[loaded]
	hearing worker[heard]
	devices []*device
	series  []*component
	errs    map[string]error // by hw.id
	look    bool
}

// loaded is a library and its cards, or why not.
type loaded struct {
	lib   library
	cards []card
	err   error
}

type heard struct {
	events []xid
	err    error
}

// find makes the next poll load the library, where there was none, and again
// where a card has failed: its driver may have come back, or it has gone.
func (g *gpus) find() error {
	g.look = g.lib == nil || len(g.errs) > 0
	for _, d := range g.devices {
		d.again()
	}
	return nil
}

func (g *gpus) components() []*component { return g.series }

func (g *gpus) poll(b *batch, boot Boot) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if g.look {
		g.look = false
		g.load(ctx)
	}
	g.errs = map[string]error{}
	if g.lib == nil {
		return nil, nil // said in the findings: most machines have none
	}
	var asked []*device
	for _, d := range g.devices {
		if d.begin() {
			asked = append(asked, d)
		} else {
			g.errs[d.id] = errNoAnswer
		}
	}
	lib := g.lib
	listening := g.hearing.begin(func() heard {
		events, err := lib.events()
		return heard{events, err}
	})
	var series []*component
	for _, d := range asked {
		if err := d.finish(ctx); err != nil {
			g.errs[d.id] = err
		}
		d.add(b, g.ledger)
		if d.newest.energyKnown {
			series = append(series, d.energy)
		}
	}
	if listening {
		if h, ok := g.hearing.wait(ctx); ok && h.err == nil {
			g.count(b, h.events)
		}
	}
	notes, err := pollAll(b, boot, series, g.errs)
	var failed []error
	for _, d := range g.devices {
		if err := g.errs[d.id]; err != nil {
			failed = append(failed, fmt.Errorf("host: %s: %w", d.id, err))
		}
	}
	return notes, errors.Join(append(failed, err)...)
}

// load opens the library and lists its cards. One that is open is closed first,
// unless a call into it still hangs.
func (g *gpus) load(ctx context.Context) {
	for _, d := range g.devices {
		if d.worker.out != nil {
			return
		}
	}
	if g.hearing.out != nil {
		return
	}
	old, open := g.lib, g.open
	started := g.loading.begin(func() loaded {
		if old != nil {
			old.close()
		}
		lib, err := open()
		if err != nil {
			return loaded{err: err}
		}
		cards, err := lib.cards()
		if err != nil {
			lib.close()
			return loaded{err: err}
		}
		return loaded{lib, cards, nil}
	})
	g.lib, g.devices = nil, nil
	if !started {
		g.why = errNoAnswer
		return
	}
	l, ok := g.loading.wait(ctx)
	if !ok {
		g.why = errNoAnswer
		return
	}
	g.lib, g.why = l.lib, l.err
	var meters []Meter
	for i, c := range l.cards {
		d := newDevice(i, c)
		g.devices = append(g.devices, d)
		meters = append(meters, Meter{Name: d.id, Type: "gpu", ID: d.id, Path: "nvml:" + d.who.uuid})
	}
	g.series = merged(g.series, components(meters), g.ledger)
	for i, d := range g.devices {
		d.energy = g.series[i]
		d.energy.counters[0].meter.ask = func() (uint64, error) { return d.newest.microjoules, nil }
	}
}

// count adds the XID errors that came. The counter goes on over a restart; what
// happened meanwhile is not in it.
func (g *gpus) count(b *batch, events []xid) {
	for _, d := range g.devices {
		if !d.who.xids {
			continue
		}
		n := 0
		for _, e := range events {
			if e.uuid == d.who.uuid {
				d.lastXID, n = e.code, n+1
			}
		}
		total, start := g.ledger.tally("xid/"+d.who.uuid, float64(n), b.now)
		b.count("hw.errors", start, total, "hw.type", "gpu", "hw.id", d.id, "error.type", "xid")
		if d.lastXID != 0 {
			b.value("hw.gpu.xid", float64(d.lastXID), "hw.type", "gpu", "hw.id", d.id)
		}
	}
}

func (g *gpus) findings() []Finding {
	if g.lib == nil {
		return []Finding{g.none()}
	}
	if len(g.devices) == 0 {
		return []Finding{absent(KindNVML, "libnvidia-ml.so.1", "the library sees no device", "nvidia-smi says what the driver thinks of it")}
	}
	var out []Finding
	for _, d := range g.devices {
		out = append(out, found(KindNVML, strings.TrimSpace(d.id+" "+d.who.name), d.who.uuid, g.errs[d.id]))
	}
	return out
}

// none says why there is no library, and whether that is a pity.
func (g *gpus) none() Finding {
	why := g.why
	if why == nil {
		why = errNoLibrary
	}
	cards := 0
	if g.fs != nil {
		cards = nvidiaCards(*g.fs)
	}
	f := absent(KindNVML, "libnvidia-ml.so.1", why.Error(), "")
	switch {
	case cards > 0 && errors.Is(why, errNoLibrary):
		f.Found = true
		f.Remedy = fmt.Sprintf("the driver holds %d NVIDIA cards: install the driver's libnvidia-ml, or run the container with the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=utility", cards)
	case cards > 0:
		f.Found = true
		f.Remedy = "nvidia-smi says what the driver thinks of it"
	case errors.Is(why, errNoLibrary):
		f.Remedy = "nothing, unless this machine has an NVIDIA card: then install its driver"
	}
	return f
}
