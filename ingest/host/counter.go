package host

import (
	"fmt"
	"time"
)

const (
	// slack is how late a reading may come after the time that it is stamped
	// with, when the machine is busy.
	slack = 5 * time.Second
	// mirrored is how far two counters of one package may lie apart, in
	// microjoules, and still be one counter that two zones show: they are read
	// some milliseconds apart.
	mirrored = 5_000_000
)

// component is one energy series: a package with all its dies, the memory of
// one, a card, or the whole host.
type component struct {
	typ, id, parent string
	counters        []*counter
	start           time.Time    // since when total counts; zero before the first reading
	last            time.Time    // of the newest reading
	total           uint64       // microjoules
	before          *savedEnergy // what an earlier process left, until the first reading
	// up and suspended are of the Boot at the newest reading.
	up, suspended time.Duration
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
		key := m.Type + "/" + m.ID
		c := byID[key]
		if c == nil {
			c = &component{typ: m.Type, id: m.ID, parent: m.Parent}
			byID[key] = c
			out = append(out, c)
		}
		c.counters = append(c.counters, &counter{meter: m, apart: len(c.counters) == 0})
	}
	return out
}

// key is the series' name in the ledger and in messages.
func (c *component) key() string {
	if c.id == "" {
		return "host"
	}
	return c.id
}

// add puts the series' newest reading into a request. The energy of the whole
// host is a metric of its own, without hw.type (S0-111, S0-112).
func (c *component) add(b *batch) {
	joules := float64(c.total) / 1e6
	if c.id == "" {
		b.count("hw.host.energy", c.start, joules)
		return
	}
	b.count("hw.energy", c.start, joules, "hw.type", c.typ, "hw.id", c.id, "hw.parent", c.parent)
}

// poll reads all counters of the component at now. An error leaves the component
// as it was, so that the next reading covers the time of this one too. A series
// that cannot go on from what was there before says why.
func (c *component) poll(now time.Time, boot Boot) (anew string, err error) {
	values := make([]uint64, len(c.counters))
	for i, k := range c.counters {
		v, err := k.meter.read()
		if err != nil {
			return "", err
		}
		values[i] = v
	}
	sum, why := c.steps(values, now, boot)
	for i, k := range c.counters {
		k.value = values[i]
		k.apart = k.apart || c.differs(i)
	}
	c.last, c.up, c.suspended, c.before = now, boot.Up, boot.Suspended, nil
	if why != "" || c.start.IsZero() {
		// Unknown energy is neither zero nor a guess: the series starts anew.
		c.start, c.total = now, 0
		return why, nil
	}
	c.total += sum
	return "", nil
}

// steps is the energy since the newest reading, of this process or of the one
// before it, in microjoules, or why it is not known.
func (c *component) steps(values []uint64, now time.Time, boot Boot) (sum uint64, why string) {
	if c.before != nil {
		if why := c.resume(boot); why != "" {
			return 0, why
		}
		return c.sum(values, boot.Up-c.up, true)
	}
	switch {
	case c.start.IsZero():
		return 0, ""
	case slept(c.suspended, boot.Suspended):
		return 0, whySlept
	}
	return c.sum(values, now.Sub(c.last), false)
}

// slept reports whether the machine was suspended between two readings of how
// long it has been in all. A suspend sets counters back on some machines.
func slept(was, now time.Duration) bool { return (now - was).Abs() > time.Second }

const whySlept = "the machine was suspended since"

func (c *component) sum(values []uint64, elapsed time.Duration, restarted bool) (sum uint64, why string) {
	for i, k := range c.counters {
		step, why := k.step(values[i], elapsed, restarted)
		if why != "" {
			return 0, k.meter.Name + ": " + why
		}
		if k.apart {
			sum += step
		}
	}
	return sum, ""
}

// step is the energy since the newest reading, in microjoules, over the wrap at
// the zone's own range. It is not known when the counter went back and the range
// is unknown, when the counter may have wrapped more than once, or when no
// component could have used so much. A counter that knows no wrap begins anew
// with its driver, unseen while nobody looked, unless it stands so high that it
// cannot have climbed there since.
func (k *counter) step(value uint64, elapsed time.Duration, restarted bool) (step uint64, why string) {
	bound := uint64(k.meter.most() * 1e6 * (elapsed + slack).Seconds())
	switch rng := k.meter.Range; {
	case rng > 0 && bound >= rng:
		return 0, fmt.Sprintf("unread for %s, in which the counter may have wrapped", elapsed.Round(time.Second))
	case rng > 0 && value < k.value && k.value > rng:
		return 0, "the counter went back from beyond its own range"
	case rng > 0 && value < k.value:
		step = rng - k.value + value
	case value < k.value:
		return 0, "the counter went back"
	case rng == 0 && restarted && k.value <= bound:
		return 0, fmt.Sprintf("unread for %s, in which the counter may have begun anew", elapsed.Round(time.Second))
	default:
		step = value - k.value
	}
	if step > bound {
		return 0, "the counter leapt by more than can have been used"
	}
	return step, ""
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
