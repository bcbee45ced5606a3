package host

import (
	"errors"
	"fmt"
	"math"
	"path"

	"github.com/wattloop/wattloop/sysfs"
)

// sensors are the hwmon chips. What a chip is says its name, never the number
// of its folder; what it measures is told in place.go.
type sensors struct {
	files  attributes
	ledger *ledger

	places []place
	series []*component // of cards that count their energy
	failed error
	errs   map[string]error // by the chip's title
}

// probe is one file of a chip and the series that it is.
type probe struct {
	metric string
	attrs  []string
	scale  float64
	file   *attribute
	enable *attribute // reads 0 while the sensor is off; may be nil
	fault  *attribute // reads 1 while it is broken; may be nil
	absent float64    // value that stands for none, 0 for no such value
	least  float64    // scaled values below are none
	count  bool
}

func (s *sensors) find() error {
	chips, err := sysfs.Chips(s.files.fs)
	s.failed = err
	used := map[string]bool{}
	of := func(path string) *attribute {
		used[path] = true
		return s.files.of(path)
	}
	s.places = placesOf(s.files.fs, chips, of)
	var meters []Meter
	for _, p := range s.places {
		if p.energy != nil {
			meters = append(meters, *p.energy)
		}
	}
	s.series = merged(s.series, components(meters), s.ledger)
	s.files.keep(used)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

func (s *sensors) poll(b *batch, boot Boot) ([]string, error) {
	s.errs = map[string]error{}
	var failed []error
	for _, p := range s.places {
		for _, probe := range p.probes {
			v, ok, err := probe.read()
			switch {
			case err != nil:
				if s.errs[p.title] == nil {
					s.errs[p.title] = err
				}
				failed = append(failed, fmt.Errorf("host: %s: %w", p.title, err))
			case ok && probe.count:
				b.count(probe.metric, s.ledger.since(p.title+"/"+path.Base(probe.file.path), v, b.now), v, probe.attrs...)
			case ok:
				b.value(probe.metric, v, probe.attrs...)
			}
		}
	}
	notes, err := pollAll(b, boot, s.series, s.errs)
	return notes, errors.Join(append(failed, err)...)
}

func (s *sensors) components() []*component { return s.series }

// read gives a value, or nothing while the sensor is off or has none.
func (p probe) read() (v float64, ok bool, err error) {
	if p.enable != nil {
		if on, err := p.enable.number(); err == nil && on == 0 {
			return 0, false, nil
		}
	}
	if p.fault != nil {
		if broken, err := p.fault.number(); err == nil && broken == 1 {
			return 0, false, fmt.Errorf("%s reads 1: %w", p.fault.path, errFault)
		}
	}
	raw, err := p.file.number()
	if err != nil {
		return 0, false, err
	}
	v = raw * p.scale
	if p.absent != 0 && raw == p.absent || v < p.least {
		return 0, false, nil
	}
	return v, true, nil
}

// errFault is a sensor that its chip calls broken.
var errFault = errors.New("the chip says that the sensor is broken or not connected")

func (s *sensors) findings() []Finding {
	var out []Finding
	for _, p := range s.places {
		out = append(out, found(KindHwmon, p.title, p.path, s.errs[p.title]))
	}
	if s.failed != nil {
		out = append(out, found(KindHwmon, "some chips", "class/hwmon", s.failed))
	}
	if len(out) == 0 {
		out = append(out, absent(KindHwmon, "class/hwmon", "the kernel has no hwmon chip with a temperature, power or fan",
			"modprobe coretemp or k10temp, and what sensors-detect names; a virtual machine has none"))
	}
	return out
}

// coldest is below every working sensor: -128 degrees and the like are inputs
// with nothing connected.
const coldest = -100

var never = math.Inf(-1)
