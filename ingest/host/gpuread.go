package host

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// query is one question to a card.
type query int

// The questions, with the unit of the answer.
const (
	askEnergy          query = iota // millijoules since the driver was loaded
	askPower                        // milliwatts
	askTemperature                  // degrees Celsius
	askMemoryTemp                   // degrees Celsius
	askGraphicsClock                // megahertz
	askSMClock                      // megahertz
	askMemoryClock                  // megahertz
	askVideoClock                   // megahertz
	askBusy                         // percent
	askMemoryBusy                   // percent
	askEncoder                      // percent
	askDecoder                      // percent
	askMemoryUsed                   // bytes, what the driver keeps for itself included
	askMemoryTotal                  // bytes
	askReasons                      // bits of reasons
	askReasonsKnown                 // bits of reasons that the card can give
	askPowerTime                    // nanoseconds
	askThermalTime                  // nanoseconds
	askSyncBoostTime                // nanoseconds
	askBoardLimitTime               // nanoseconds
	askLowUtilTime                  // nanoseconds
	askReliabilityTime              // nanoseconds
	askECCCorrected                 // errors since the driver was loaded
	askECCUncorrected               // errors since the driver was loaded
	askPCIeReplay                   // count
	askLinkCRCFlit                  // count over all links
	askLinkCRCData                  // count over all links
	askLinkReplay                   // count over all links
	askLinkRecovery                 // count over all links
	askLinkSent                     // KiB over all links
	askLinkReceived                 // KiB over all links
	askLinksUp                      // links
	askPersistence                  // 0 or 1
	askDivided                      // 1 in MIG mode
)

// quantity is the series that an answer becomes.
type quantity struct {
	q      query
	metric string
	scale  float64
	count  bool
	attrs  []string
}

// quantities are those with one answer each. An instance of a divided card has
// but a share of the memory of its own; its power is the card's.
func quantities(instance bool) []quantity {
	memory := []quantity{
		{askMemoryUsed, "hw.gpu.memory.usage", 1, false, nil},
		{askMemoryTotal, "hw.gpu.memory.limit", 1, false, nil},
	}
	if instance {
		return memory
	}
	at := func(where string) []string { return []string{"hw.sensor_location", where} }
	clock := func(which string) []string { return []string{"hw.gpu.clock", which} }
	task := func(which string) []string { return []string{"hw.gpu.task", which} }
	reason := func(which string) []string { return []string{"hw.gpu.throttle.reason", which} }
	kind := func(which string) []string { return []string{"error.type", which} }
	way := func(which string) []string { return []string{"network.io.direction", which} }
	const times, errs = "hw.gpu.throttle.time", "hw.errors"
	return append(memory, []quantity{
		{askPower, "hw.power", 1e-3, false, nil},
		{askTemperature, "hw.temperature", 1, false, at("gpu")},
		{askMemoryTemp, "hw.temperature", 1, false, at("memory")},
		{askGraphicsClock, "hw.gpu.speed", 1e6, false, clock("graphics")},
		{askSMClock, "hw.gpu.speed", 1e6, false, clock("sm")},
		{askMemoryClock, "hw.gpu.speed", 1e6, false, clock("memory")},
		{askVideoClock, "hw.gpu.speed", 1e6, false, clock("video")},
		{askBusy, "hw.gpu.utilization", 1e-2, false, task("general")},
		{askEncoder, "hw.gpu.utilization", 1e-2, false, task("encoder")},
		{askDecoder, "hw.gpu.utilization", 1e-2, false, task("decoder")},
		{askMemoryBusy, "hw.gpu.memory.busy", 1e-2, false, nil},
		{askPowerTime, times, 1e-9, true, reason("power")},
		{askThermalTime, times, 1e-9, true, reason("thermal")},
		{askSyncBoostTime, times, 1e-9, true, reason("sync_boost")},
		{askBoardLimitTime, times, 1e-9, true, reason("board_limit")},
		{askLowUtilTime, times, 1e-9, true, reason("low_utilization")},
		{askReliabilityTime, times, 1e-9, true, reason("reliability")},
		{askECCCorrected, errs, 1, true, kind("ecc_corrected")},
		{askECCUncorrected, errs, 1, true, kind("ecc_uncorrected")},
		{askPCIeReplay, errs, 1, true, kind("pcie_replay")},
		{askLinkCRCFlit, errs, 1, true, kind("nvlink_crc_flit")},
		{askLinkCRCData, errs, 1, true, kind("nvlink_crc_data")},
		{askLinkReplay, errs, 1, true, kind("nvlink_replay")},
		{askLinkRecovery, errs, 1, true, kind("nvlink_recovery")},
		{askLinkSent, "hw.gpu.io", 1024, true, way("transmit")},
		{askLinkReceived, "hw.gpu.io", 1024, true, way("receive")},
		{askLinksUp, "hw.gpu.links", 1, false, nil},
		{askPersistence, "hw.gpu.persistence_mode", 1, false, nil},
	}...)
}

// throttleReasons are the bits of askReasons (nvml.h, nvmlClocksEventReasons).
func throttleReasons() []struct {
	bit  uint64
	name string
} {
	return []struct {
		bit  uint64
		name string
	}{
		{0x1, "idle"}, {0x2, "applications_clocks"}, {0x4, "sw_power_cap"}, {0x8, "hw_slowdown"},
		{0x10, "sync_boost"}, {0x20, "sw_thermal"}, {0x40, "hw_thermal"}, {0x80, "hw_power_brake"},
		{0x100, "display_clocks"}, {0x200, "board_limit"}, {0x400, "reliability"},
	}
}

// deadCard is one that the library counts and cannot open: it keeps its place,
// so that the cards behind it keep their numbers.
type deadCard struct {
	who identity
	err error
}

func (c deadCard) identity() identity         { return c.who }
func (c deadCard) ask(query) (uint64, error)  { return 0, c.err }
func (c deadCard) instances() ([]card, error) { return nil, nil }

// device is one card and what was read of it last.
type device struct {
	card
	id      string // gpu0
	who     identity
	worker  worker[reading]
	newest  reading
	silent  map[string]bool // questions, by part, that it does not answer
	lastXID uint64
	energy  *component
}

func newDevice(index int, c card) *device {
	return &device{card: c, id: "gpu" + strconv.Itoa(index), who: c.identity(), silent: map[string]bool{}}
}

// again makes the next reading ask what was not supported once more: a MIG mode
// or a driver may have changed.
func (d *device) again() {
	if d.worker.out == nil {
		clear(d.silent)
	}
}

// reading is all of one card at one time.
type reading struct {
	energyKnown bool
	microjoules uint64
	answers     []answer
	err         error // first that is more than "not supported"
}

type answer struct {
	quantity
	part string // of a divided card; empty: the card
	v    float64
}

func (d *device) begin() bool {
	return d.worker.begin(d.read)
}

// finish takes the reading over, or an empty one where there is none in time.
func (d *device) finish(ctx context.Context) error {
	r, ok := d.worker.wait(ctx)
	if !ok {
		d.newest = reading{}
		return errNoAnswer
	}
	d.newest = r
	return r.err
}

// read asks everything. It runs beside the poll and touches silent and card
// alone, which nobody else does while it runs.
func (d *device) read() reading {
	var r reading
	if mj, ok := d.question(&r, d.card, "", askEnergy, "energy"); ok {
		r.energyKnown, r.microjoules = true, mj*1000
	}
	d.ask(&r, d.card, "")
	known, ok := d.question(&r, d.card, "", askReasonsKnown, "throttle reasons")
	if mask, answered := d.question(&r, d.card, "", askReasons, "throttle reasons"); ok && answered {
		for _, t := range throttleReasons() {
			if known&t.bit == 0 {
				continue
			}
			active := 0.0
			if mask&t.bit != 0 {
				active = 1
			}
			r.answers = append(r.answers, answer{quantity{metric: "hw.gpu.throttle.active", attrs: []string{"hw.gpu.throttle.reason", t.name}}, "", active})
		}
	}
	if divided, ok := d.question(&r, d.card, "", askDivided, "MIG mode"); ok && divided == 1 {
		parts, err := d.card.instances()
		if err != nil && r.err == nil {
			r.err = err
		}
		for i, part := range parts {
			d.ask(&r, part, "/mig"+strconv.Itoa(i))
		}
	}
	return r
}

// ask puts the answers about a card, or an instance of one, into the reading.
func (d *device) ask(r *reading, c card, part string) {
	var used, total float64
	for _, q := range quantities(part != "") {
		raw, ok := d.question(r, c, part, q.q, q.metric)
		switch {
		case !ok:
			continue
		case q.q == askMemoryTemp && raw == 0: // a card without that sensor says so
			continue
		case q.scale == 1e-2 && raw > 100: // a percentage that is none
			continue
		}
		v := float64(raw) * q.scale
		switch q.q {
		case askMemoryUsed:
			used = v
		case askMemoryTotal:
			total = v
		}
		r.answers = append(r.answers, answer{q, part, v})
	}
	if total > 0 {
		r.answers = append(r.answers, answer{quantity{metric: "hw.gpu.memory.utilization"}, part, used / total})
	}
}

func (d *device) question(r *reading, c card, part string, q query, what string) (uint64, bool) {
	key := part + " " + strconv.Itoa(int(q))
	if d.silent[key] {
		return 0, false
	}
	v, err := c.ask(q)
	if errors.Is(err, errNotSupported) {
		d.silent[key] = true
		return 0, false
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, err)
	}
	return v, err == nil
}

// add puts the newest reading into a request.
func (d *device) add(b *batch, l *ledger) {
	for _, a := range d.newest.answers {
		attrs := []string{"hw.type", "gpu", "hw.id", d.id + a.part}
		if a.part != "" {
			attrs = append(attrs, "hw.parent", d.id)
		}
		attrs = append(attrs, a.attrs...)
		if !a.count {
			b.value(a.metric, a.v, attrs...)
			continue
		}
		start := l.since("gpu/"+d.who.uuid+a.part+"/"+strconv.Itoa(int(a.q)), a.v, b.now)
		b.count(a.metric, start, a.v, attrs...)
	}
}
