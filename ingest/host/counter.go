package host

import (
	"time"
)

const (
	// plausible is the power in watts above which a step of one counter is no
	// energy but a counter that started anew, as after a suspend: the largest
	// packages draw a tenth of it.
	plausible = 10_000
	// mirrored is how far two counters of one package may lie apart, in
	// microjoules, and still be one counter that two zones show: they are read
	// some milliseconds apart.
	mirrored = 5_000_000
)

// component is one hw.energy series: a package with all its dies, or the memory
// of one.
type component struct {
	typ, id, parent string
	counters        []*counter
	start           time.Time // since when total counts; zero before the first reading
	last            time.Time // of the newest reading
	total           uint64    // microjoules
}

// counter is one meter and its newest reading.
type counter struct {
	meter Meter
	value uint64
	// apart is set once the counter was seen to differ from every one before it
	// in the component; until then it adds nothing, as it may be the same energy
	// again. Some machines show one package counter in the zone of every die.
	apart bool
}

// components groups meters by series, in the order of the meters.
func components(meters []Meter) []*component {
	var out []*component
	byID := map[string]*component{}
	for _, m := range meters {
		c := byID[m.Type+"/"+m.ID]
		if c == nil {
			c = &component{typ: m.Type, id: m.ID, parent: m.Parent}
			byID[m.Type+"/"+m.ID] = c
			out = append(out, c)
		}
		c.counters = append(c.counters, &counter{meter: m, apart: len(c.counters) == 0})
	}
	return out
}

// poll reads all counters of the component at now. An error leaves the component
// as it was, so that the next reading covers the time of this one too.
func (c *component) poll(now time.Time) error {
	values := make([]uint64, len(c.counters))
	for i, k := range c.counters {
		v, err := k.meter.read()
		if err != nil {
			return err
		}
		values[i] = v
	}
	var sum uint64
	known := !c.start.IsZero()
	for i, k := range c.counters {
		step, ok := k.step(values[i], now.Sub(c.last))
		known = known && ok
		if k.apart {
			sum += step
		}
	}
	for i, k := range c.counters {
		k.value = values[i]
		k.apart = k.apart || c.differs(i)
	}
	c.last = now
	if !known {
		// Unknown energy is neither zero nor a guess: the series starts anew.
		c.start, c.total = now, 0
		return nil
	}
	c.total += sum
	return nil
}

// step is the energy since the newest reading, in microjoules, over the wrap at
// the zone's own range. It is not known when the counter went back and the range
// is unknown, or when no package could have used so much.
func (k *counter) step(value uint64, elapsed time.Duration) (uint64, bool) {
	step := value - k.value
	if value < k.value {
		if k.value > k.meter.Range {
			return 0, false
		}
		step = k.meter.Range - k.value + value
	}
	if elapsed > 0 && float64(step)/1e6 > plausible*elapsed.Seconds() {
		return 0, false
	}
	return step, true
}

// differs reports whether counter i has its own energy, by the values read last.
func (c *component) differs(i int) bool {
	k := c.counters[i]
	for _, other := range c.counters[:i] {
		d := max(k.value, other.value) - min(k.value, other.value)
		if r := k.meter.Range; r > d { // one may have wrapped just before the other
			d = min(d, r-d)
		}
		if d <= mirrored {
			return false
		}
	}
	return true
}
