package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// machine is a boot that tests age and suspend.
type machine struct {
	boot Boot
	now  time.Time
}

func (m *machine) pass(d time.Duration) {
	m.boot.Up += d
	m.now = m.now.Add(d)
}

func newMachine() *machine {
	return &machine{boot: Boot{ID: "boot-1", Up: 1000 * time.Second}, now: t0}
}

// run is one life of the process: it polls once for each value, a second apart,
// and writes the ledger down.
func (m *machine) run(t testing.TB, dir string, meter Meter, x *text, values ...string) (joules []float64, starts []time.Time) {
	t.Helper()
	var c capture
	s := c.source([]Meter{meter})
	s.Clock = func() time.Time { return m.now }
	s.Boot = func() Boot { return m.boot }
	s.State = dir
	for _, v := range values {
		x.value = v
		if err := s.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.points(t) {
			joules = append(joules, p.DoubleValue())
			starts = append(starts, p.StartTimestamp().AsTime())
		}
		m.pass(time.Second)
	}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	return joules, starts
}

// S0-113: over a restart the counter goes on with the energy used meanwhile and
// keeps its start, also over a wrap; where that energy is not certain the series
// starts anew with a new start time, and nothing is guessed.
func TestRestart(t *testing.T) {
	const rng = 262143328850
	f := func(name string, meter func(*text) Meter, first, before string, change func(*machine), after string, want float64) {
		t.Helper()
		m, x, dir := newMachine(), &text{}, t.TempDir()
		then, starts := m.run(t, dir, meter(x), x, first, before)
		change(m)
		began := m.now
		got, again := m.run(t, dir, meter(x), x, after)
		if got[0] != want {
			t.Errorf("%s: %g J after the restart, %g before; want %g", name, got[0], then[1], want)
		}
		wantStart := starts[0]
		if want == 0 {
			wantStart = began
		}
		if !again[0].Equal(wantStart) {
			t.Errorf("%s: start %v; want %v", name, again[0], wantStart)
		}
	}
	pkg := func(x *text) Meter { return cpu("cpu0", rng, x) }
	gpu := func(x *text) Meter {
		return Meter{Name: "gpu0", Type: "gpu", ID: "gpu0", Path: "nvml:GPU-1", File: x}
	}
	wait := func(d time.Duration) func(*machine) { return func(m *machine) { m.pass(d) } }
	f("a minute", pkg, "1000000000", "1200000000", wait(time.Minute), "8200000000", 7200)
	f("over a wrap", pkg, "262142900000", "262143100000", wait(200*time.Second), "99771150", 100.2)
	f("an hour, in which it may have wrapped", pkg, "1000000000", "1200000000", wait(time.Hour), "8200000000", 0)
	f("a leap that no package makes", pkg, "1000000000", "1200000000", wait(10*time.Second), "200000000000", 0)
	f("another boot", pkg, "1000000000", "1200000000", func(m *machine) { m.pass(time.Minute); m.boot.ID = "boot-2" }, "8200000000", 0)
	f("the clock set, which is no matter", pkg, "1000000000", "1200000000", func(m *machine) { m.pass(time.Minute); m.now = m.now.Add(24 * time.Hour) }, "8200000000", 7200)
	f("a suspend", pkg, "1000000000", "1200000000", func(m *machine) { m.pass(time.Minute); m.boot.Suspended += 30 * time.Second }, "8200000000", 0)
	f("a card, a minute", gpu, "1000000000000", "1000200000000", wait(time.Minute), "1000300000000", 300)
	f("a card whose driver was loaded again", gpu, "1000000000", "1200000000", wait(time.Minute), "5000000", 0)
	f("a card that may have begun anew and climbed past", gpu, "1000000000", "1200000000", wait(time.Hour), "1300000000", 0)

	m, x, dir := newMachine(), &text{}, t.TempDir()
	m.run(t, dir, pkg(x), x, "1000000000", "1200000000")
	moved := pkg(x)
	moved.Path = "class/powercap/intel-rapl-mmio:0/energy_uj"
	if got, _ := m.run(t, dir, moved, x, "1300000000"); got[0] != 0 {
		t.Errorf("read from another counter: %g J; want a new series", got[0])
	}
}

// S0-113: however often the process dies, its counter never falls and in the
// end has counted what was used, exactly, as long as it is certain.
func TestRestartsAreExact(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		os.Remove(filepath.Join(dir, ledgerFile))
		const rng = 65712999613
		m, x := newMachine(), &text{}
		raw := rapid.Uint64Range(0, rng-1).Draw(rt, "first")
		var used uint64
		last := -1.0
		for life := range rapid.IntRange(1, 6).Draw(rt, "lives") {
			var values []string
			for i := range rapid.IntRange(1, 4).Draw(rt, "polls") {
				if life > 0 || i > 0 {
					step := rapid.Uint64Range(0, 500_000_000).Draw(rt, "step")
					raw, used = (raw+step)%rng, used+step
				}
				values = append(values, microjoules(raw))
			}
			joules, _ := m.run(t, dir, cpu("cpu0", rng, x), x, values...)
			for _, j := range joules {
				if j < last {
					rt.Fatalf("the counter fell from %g to %g", last, j)
				}
				last = j
			}
			m.pass(time.Duration(rapid.IntRange(0, 40).Draw(rt, "down")) * time.Second)
		}
		if want := float64(used) / 1e6; last != want {
			rt.Errorf("counted %g J; used %g", last, want)
		}
	})
}

// A damaged ledger is put aside and said; a newer one is refused.
func TestLedgerFile(t *testing.T) {
	f := func(name, wantErr string, change func(string) string) {
		t.Helper()
		m, x, dir := newMachine(), &text{}, t.TempDir()
		m.run(t, dir, cpu("cpu0", 1e12, x), x, "1000000", "2000000")
		path := filepath.Join(dir, ledgerFile)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := change(string(data))
		if changed == string(data) {
			t.Fatalf("%s: the change changed nothing", name)
		}
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := openLedger(dir, m.now, m.boot)
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: openLedger = %v; want %q", name, err, wantErr)
		}
		aside, _ := os.ReadFile(path + ".damaged")
		if newer := strings.Contains(wantErr, "newer"); newer != (l == nil) || newer == (string(aside) == changed) {
			t.Errorf("%s: ledger %v, put aside %d bytes", name, l, len(aside))
		}
	}
	f("a flipped byte", "damaged: the checksum", func(s string) string { return strings.Replace(s, `"boot_id":"b`, `"boot_id":"c`, 1) })
	f("cut short", "damaged: the checksum", func(s string) string { return s[:len(s)-5] })
	f("another file", "no ledger", func(string) string { return "{}\n" })
	f("empty", "no ledger", func(string) string { return "" })
	f("newer", "is of a newer wattloop", func(s string) string { return strings.Replace(s, "ledger 1 ", "ledger 2 ", 1) })
}

// Whatever the file holds, reading it ends in a book or an error.
func FuzzLedger(f *testing.F) {
	f.Add([]byte("wattloop ledger 1 00000000\n"))
	f.Add([]byte("wattloop ledger 1 1cf96d7c\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseLedger(data)
		if err != nil && (b.Boot != "" || b.Energies != nil || b.Counts != nil) {
			t.Errorf("an error beside %+v", b)
		}
	})
}

// S0-1: a counter that cannot be read while the machine is looked over, once a
// minute, is asked again at the next poll and not at the next look, and its series
// goes on over the gap.
func TestLookOverAFailingCounter(t *testing.T) {
	zone := "class/powercap/intel-rapl:0/"
	c, s, sys := tree(t, map[string]string{zone + "name": "package-0", zone + "energy_uj": "1000000", zone + "max_energy_range_uj": "262143328850"}, nil)
	poll := func(after time.Duration, uj, want string) {
		t.Helper()
		sysfstest.Write(t, sys, zone+"energy_uj", uj)
		c.requests, c.now = nil, t0.Add(after)
		if err := s.Poll(t.Context()); (err != nil) != (want == "") || (len(s.Unread()) > 0) != (want == "") {
			t.Errorf("after %s: %v, unread %v", after, err, s.Unread())
		}
		if got := strings.Join(c.all(t), ", "); got != want {
			t.Errorf("after %s: %s; want %s", after, got, want)
		}
	}
	const series = "hw.energy{hw.id=cpu0,hw.type=cpu} "
	poll(0, "1000000", series+"0")
	poll(30*time.Second, "31000000", series+"30")
	poll(61*time.Second, "", "")
	poll(62*time.Second, "63000000", series+"62")
	if got := c.start("hw.energy"); !got.Equal(t0) {
		t.Errorf("the series starts at %s; want %s", got, t0)
	}
}
