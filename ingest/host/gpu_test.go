package host

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
)

// fakeLibrary is a library without a machine.
type fakeLibrary struct {
	mu      sync.Mutex
	devices []card
	queue   []xid
	none    error // of events
	closed  int
}

func (l *fakeLibrary) cards() ([]card, error) { return l.devices, nil }
func (l *fakeLibrary) close()                 { l.closed++ }

func (l *fakeLibrary) events() ([]xid, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.queue
	l.queue = nil
	return out, l.none
}

// fakeCard answers what it has been given, and nothing else.
type fakeCard struct {
	who   identity
	mu    sync.Mutex
	knows map[query]uint64
	fails map[query]error
	parts []card
	hang  chan struct{} // when it is not nil a call waits for it
}

func (c *fakeCard) identity() identity         { return c.who }
func (c *fakeCard) instances() ([]card, error) { return c.parts, nil }

func (c *fakeCard) ask(q query) (uint64, error) {
	c.mu.Lock()
	hang, v, known, err := c.hang, c.knows[q], false, c.fails[q]
	_, known = c.knows[q]
	c.mu.Unlock()
	if hang != nil {
		<-hang
	}
	switch {
	case err != nil:
		return 0, err
	case !known:
		return 0, errNotSupported
	}
	return v, nil
}

func (c *fakeCard) set(q query, v uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knows[q] = v
}

func gpuSource(lib library, err error) (*capture, *Source) {
	c := &capture{now: t0}
	s := c.source(nil)
	s.library = func() (library, error) { return lib, err }
	s.Boot = func() Boot { return Boot{ID: "b", Up: time.Hour} }
	return c, s
}

// S0-108, C41, C60: a card's answers in the units of the conventions; what it
// does not know is absent, never 0.
func TestCard(t *testing.T) {
	c1 := &fakeCard{who: identity{uuid: "GPU-1", name: "NVIDIA H100", xids: true}, knows: map[query]uint64{
		askEnergy: 5_000_000, askPower: 45_210, askTemperature: 61, askMemoryTemp: 0, askSMClock: 1980, askMemoryClock: 2619,
		askBusy: 97, askMemoryBusy: 30, askDecoder: 101, askMemoryUsed: 60 << 30, askMemoryTotal: 80 << 30,
		askReasonsKnown: 0x1ff, askReasons: 0x104, askPowerTime: 90_000_000_000, askECCCorrected: 3, askPCIeReplay: 7,
		askLinkCRCFlit: 2, askLinkSent: 3, askLinksUp: 18, askPersistence: 1, askDivided: 0,
	}}
	lib := &fakeLibrary{devices: []card{c1}, queue: []xid{{"GPU-1", 79}, {"GPU-2", 31}}}
	c, s := gpuSource(lib, nil)
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	const gpu = "hw.id=gpu0,hw.type=gpu} "
	want := []string{
		"hw.energy{" + gpu + "0",
		"hw.errors{error.type=ecc_corrected," + gpu + "3",
		"hw.errors{error.type=nvlink_crc_flit," + gpu + "2",
		"hw.errors{error.type=pcie_replay," + gpu + "7",
		"hw.errors{error.type=xid," + gpu + "1",
		"hw.gpu.io{" + "hw.id=gpu0,hw.type=gpu,network.io.direction=transmit} 3072",
		"hw.gpu.links{" + gpu + "18",
		"hw.gpu.memory.busy{" + gpu + "0.3",
		"hw.gpu.memory.limit{" + gpu + "8.58993e+10",
		"hw.gpu.memory.usage{" + gpu + "6.44245e+10",
		"hw.gpu.memory.utilization{" + gpu + "0.75",
		"hw.gpu.persistence_mode{" + gpu + "1",
		"hw.gpu.speed{hw.gpu.clock=memory," + gpu + "2.619e+09",
		"hw.gpu.speed{hw.gpu.clock=sm," + gpu + "1.98e+09",
	}
	for _, r := range []string{"applications_clocks 0", "display_clocks 1", "hw_power_brake 0", "hw_slowdown 0", "hw_thermal 0", "idle 0",
		"sw_power_cap 1", "sw_thermal 0", "sync_boost 0"} {
		name, v, _ := strings.Cut(r, " ")
		want = append(want, "hw.gpu.throttle.active{hw.gpu.throttle.reason="+name+","+gpu+v)
	}
	want = append(want,
		"hw.gpu.throttle.time{hw.gpu.throttle.reason=power,"+gpu+"90",
		"hw.gpu.utilization{hw.gpu.task=general,"+gpu+"0.97",
		"hw.gpu.xid{"+gpu+"79",
		"hw.power{"+gpu+"45.21",
		"hw.temperature{hw.id=gpu0,hw.sensor_location=gpu,hw.type=gpu} 61",
	)
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	if got, want := s.Findings(), (Finding{Kind: KindNVML, Name: "gpu0 NVIDIA H100", Source: "GPU-1", Found: true, Readable: true}); got[len(got)-1] != want {
		t.Errorf("finding %+v; want %+v", got[len(got)-1], want)
	}
	// 300 J later, in millijoules; no XID came, and none is forgotten.
	c.requests, c.now = nil, t0.Add(time.Second)
	c1.set(askEnergy, 5_300_000)
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hw.energy{" + gpu + "300", "hw.errors{error.type=xid," + gpu + "1", "hw.gpu.xid{" + gpu + "79"} {
		if got := strings.Join(c.all(t), "\n"); !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in:\n%s", want, got)
		}
	}
}

// Of a divided card the power is the card's and an instance has memory alone.
func TestDividedCard(t *testing.T) {
	part := &fakeCard{knows: map[query]uint64{askMemoryUsed: 1 << 30, askMemoryTotal: 10 << 30, askPower: 1}}
	whole := &fakeCard{who: identity{uuid: "GPU-1"}, parts: []card{part}, knows: map[query]uint64{askPower: 300_000, askDivided: 1}}
	c, s := gpuSource(&fakeLibrary{devices: []card{whole}}, nil)
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"hw.gpu.memory.limit{hw.id=gpu0/mig0,hw.parent=gpu0,hw.type=gpu} 1.07374e+10",
		"hw.gpu.memory.usage{hw.id=gpu0/mig0,hw.parent=gpu0,hw.type=gpu} 1.07374e+09",
		"hw.gpu.memory.utilization{hw.id=gpu0/mig0,hw.parent=gpu0,hw.type=gpu} 0.1",
		"hw.power{hw.id=gpu0,hw.type=gpu} 300",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}

// A driver that hangs costs its own card two seconds once; the others and the
// meters of the machine go on, and the card comes back when the driver does.
func TestDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		stuck := &fakeCard{who: identity{uuid: "GPU-1"}, knows: map[query]uint64{askPower: 100_000}, hang: hang}
		fine := &fakeCard{who: identity{uuid: "GPU-2"}, knows: map[query]uint64{askPower: 200_000}}
		c, s := gpuSource(&fakeLibrary{devices: []card{stuck, fine}}, nil)
		s.Meters = []Meter{cpu("cpu0", 1e12, &text{value: "1000000"})}
		s.Clock = time.Now
		poll := func(took time.Duration, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			c.requests = nil
			began := time.Now()
			err := s.Poll(t.Context())
			if d := time.Since(began); d != took {
				t.Errorf("the poll took %s; want %s", d, took)
			}
			if diff := cmp.Diff(want, c.all(t)); diff != "" {
				t.Errorf("points (-want +got):\n%s", diff)
			}
			if fails := err != nil && strings.Contains(err.Error(), "host: gpu0: the driver has not answered for 2 s"); fails != (len(want) == 2) {
				t.Errorf("Poll = %v", err)
			}
		}
		poll(patience, "hw.energy{hw.id=cpu0,hw.type=cpu} 0", "hw.power{hw.id=gpu1,hw.type=gpu} 200")
		poll(0, "hw.energy{hw.id=cpu0,hw.type=cpu} 0", "hw.power{hw.id=gpu1,hw.type=gpu} 200")
		stuck.mu.Lock()
		stuck.hang = nil
		stuck.mu.Unlock()
		close(hang)
		synctest.Wait()
		poll(0, "hw.energy{hw.id=cpu0,hw.type=cpu} 0", "hw.power{hw.id=gpu0,hw.type=gpu} 100", "hw.power{hw.id=gpu1,hw.type=gpu} 200")
	})
}

// A card that is lost has no points and its reason; the library is loaded again
// a minute later, and the card's counter begins anew, as its driver's has.
func TestCardIsLost(t *testing.T) {
	c1 := &fakeCard{who: identity{uuid: "GPU-1"}, knows: map[query]uint64{askEnergy: 1000, askPower: 100_000}}
	lib := &fakeLibrary{devices: []card{c1}}
	c, s := gpuSource(lib, nil)
	poll := func(at time.Duration, want []string) {
		t.Helper()
		c.requests, c.now = nil, t0.Add(at)
		s.Poll(t.Context())
		if diff := cmp.Diff(want, c.all(t)); diff != "" {
			t.Errorf("points at %s (-want +got):\n%s", at, diff)
		}
	}
	poll(0, []string{"hw.energy{hw.id=gpu0,hw.type=gpu} 0", "hw.power{hw.id=gpu0,hw.type=gpu} 100"})
	lost := errors.New("GPU is lost")
	c1.fails = map[query]error{askEnergy: lost, askPower: lost}
	poll(time.Second, nil)
	if diff := cmp.Diff([]string{"nvml gpu0: energy: GPU is lost"}, s.bad()); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	c1.fails, c1.knows = nil, map[query]uint64{askEnergy: 5, askPower: 100_000}
	poll(time.Minute+time.Second, []string{"hw.energy{hw.id=gpu0,hw.type=gpu} 0", "hw.power{hw.id=gpu0,hw.type=gpu} 100"})
	if lib.closed != 1 {
		t.Errorf("the library was closed %d times; want 1", lib.closed)
	}
}

// No library: no fault on a machine without a card, and what to do on one whose
// driver is loaded.
func TestNoLibrary(t *testing.T) {
	f := func(links map[string]string, wantFound bool, remedy string) {
		t.Helper()
		c, s, _ := tree(t, nil, links)
		s.library = func() (library, error) { return nil, errNoLibrary }
		s.Poll(t.Context())
		all := s.Findings()
		got := all[len(all)-1]
		if got.Kind != KindNVML || got.Found != wantFound || got.Readable || !strings.Contains(got.Remedy, remedy) {
			t.Errorf("finding %+v; want found %v and %q", got, wantFound, remedy)
		}
		if points := c.all(t); points != nil {
			t.Errorf("points %q", points)
		}
	}
	f(nil, false, "nothing, unless this machine has an NVIDIA card")
	f(map[string]string{"bus/pci/drivers/nvidia/0000:17:00.0": "x"}, true, "the driver holds 1 NVIDIA cards: install the driver's libnvidia-ml")
	if nvidiaCards(sysfs.New(t.TempDir())) != 0 {
		t.Error("a machine without the driver has cards")
	}
}
