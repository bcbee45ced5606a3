package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/wattloop/wattloop/sysfs"
)

// energies are the RAPL counters: those that were handed over open, and those
// of the tree that this process can open itself.
type energies struct {
	fs     *sysfs.FS // nil: the handed ones alone
	handed []Meter
	ledger *ledger

	series []*component
	files  attributes
	errs   map[string]error // of the newest poll, by the meter's name
	other  []Finding        // what cannot be opened, or why there is nothing
	closed []Meter          // those of other that are there
}

// find looks for counters that are not open yet. Series whose counters are the
// same go on.
func (e *energies) find() error {
	meters := slices.Clone(e.handed)
	e.other, e.closed = nil, nil
	if e.fs != nil {
		all, err := Find(*e.fs)
		if err != nil { // what was found before is read on
			e.other = []Finding{found(KindRAPL, "some zones", "class/powercap", err)}
			if e.series == nil {
				e.series = merged(nil, components(meters), e.ledger)
			}
			return err
		}
		for _, m := range all {
			if slices.ContainsFunc(meters, func(h Meter) bool { return h.Path == m.Path }) {
				continue
			}
			if err := e.open(&m); err != nil {
				e.other = append(e.other, found(KindRAPL, m.Name, m.Path, err))
				e.closed = append(e.closed, m)
				continue
			}
			meters = append(meters, m)
		}
		if len(all) == 0 {
			e.other = []Finding{noRAPL(*e.fs)}
		}
	}
	e.series = merged(e.series, components(meters), e.ledger)
	return nil
}

// open opens a counter that this process may read; the warden hands over the
// others. One of a series that goes on stays in it when it cannot be read now:
// each poll asks it again, and the next reading covers the gap.
func (e *energies) open(m *Meter) error {
	e.files.fs = *e.fs
	a := e.files.of(m.Path)
	if _, err := a.number(); err != nil && !e.reads(m.Path) {
		return err
	}
	m.File = a
	return nil
}

// reads reports whether a counter is in a series.
func (e *energies) reads(path string) bool {
	return slices.ContainsFunc(e.series, func(c *component) bool {
		return slices.ContainsFunc(c.counters, func(k *counter) bool { return k.meter.Path == path })
	})
}

// merged takes what is known of a series over to the same counters, and asks the
// ledger for the others.
func merged(old, found []*component, l *ledger) []*component {
	for i, c := range found {
		j := slices.IndexFunc(old, func(o *component) bool { return o.key() == c.key() && sameCounters(o, c) })
		if j >= 0 {
			found[i] = old[j]
		} else {
			l.take(c)
		}
	}
	return found
}

func sameCounters(a, b *component) bool {
	return slices.EqualFunc(a.counters, b.counters, func(x, y *counter) bool { return x.meter.Path == y.meter.Path })
}

func (e *energies) poll(b *batch, boot Boot) (notes []string, err error) {
	e.errs = map[string]error{}
	return pollAll(b, boot, e.series, e.errs)
}

// pollAll reads series and adds those that could be read. The notes say which
// began anew and why.
func pollAll(b *batch, boot Boot, series []*component, errs map[string]error) (notes []string, err error) {
	var failed []error
	for _, c := range series {
		anew, err := c.poll(b.now, boot)
		if err != nil {
			failed = append(failed, err)
			for _, k := range c.counters {
				errs[k.meter.Name] = err
			}
			continue
		}
		if anew != "" {
			notes = append(notes, fmt.Sprintf("energy of %s: %s", c.key(), anew))
		}
		c.add(b)
	}
	return notes, errors.Join(failed...)
}

// unread are the counters whose energy the newest poll has not got.
func (e *energies) unread() []Meter {
	out := slices.Clone(e.closed)
	for _, c := range e.series {
		for _, k := range c.counters {
			if e.errs[k.meter.Name] != nil {
				out = append(out, k.meter)
			}
		}
	}
	return out
}

func (e *energies) findings() []Finding {
	var out []Finding
	for _, c := range e.series {
		for _, k := range c.counters {
			out = append(out, found(KindRAPL, k.meter.Name, k.meter.Path, e.errs[k.meter.Name]))
		}
	}
	return append(out, e.other...)
}

// noRAPL says why a machine shows no energy counter.
func noRAPL(f sysfs.FS) Finding {
	const source = "class/powercap"
	if sysfs.Masked(f) {
		return absent(KindRAPL, source, "this container has the zones hidden: the links in class/powercap lead nowhere",
			"mount the host's /sys at /host-sys (hostPath /sys, read-only is enough for reading)")
	}
	if _, err := f.ReadDir(source); err != nil {
		return absent(KindRAPL, source, "the kernel has no powercap class", "modprobe intel_rapl_msr, which serves AMD too (CONFIG_INTEL_RAPL); a virtual machine has no counters")
	}
	return absent(KindRAPL, source, "the kernel lists no RAPL zone", "modprobe intel_rapl_msr, which serves AMD too; a virtual machine and a CPU that the driver does not know have no counters")
}

func (e *energies) components() []*component { return e.series }
