package host

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattloop/wattloop/sysfs"
)

// clocks are the cpufreq policies: the clock that runs, and its bounds, those
// of the hardware and those that are enforced now (S0-179).
type clocks struct {
	files    attributes
	policies []policyFiles
	failed   error // of the look for policies
	errs     map[string]error
	last     time.Time
}

// clocksEvery is how often clocks are read, if that is more than the interval of
// all: there are five series of each policy, and often one policy of each CPU.
const clocksEvery = 5 * time.Second

// policyFiles are the files of one policy that are there.
type policyFiles struct {
	sysfs.Policy
	current *attribute
	bounds  []bound
}

type bound struct {
	limit string // hw.limit_type
	file  *attribute
}

// boundFiles are the files of bounds and what they are called. The hardware's
// are what the driver has found, the enforced are what the governor may use.
func boundFiles() []struct{ file, limit string } {
	return []struct{ file, limit string }{
		{"cpuinfo_min_freq", "min"}, {"cpuinfo_max_freq", "max"},
		{"scaling_min_freq", "enforced_min"}, {"scaling_max_freq", "enforced_max"},
	}
}

func (c *clocks) find() error {
	policies, err := sysfs.Policies(c.files.fs)
	c.policies, c.failed = nil, err
	used := map[string]bool{}
	for _, p := range policies {
		names, err := c.files.fs.ReadDir(p.Path)
		if err != nil {
			c.failed = errors.Join(c.failed, err)
			continue
		}
		file := func(name string) *attribute {
			if !slices.Contains(names, name) {
				return nil
			}
			used[p.File(name)] = true
			return c.files.of(p.File(name))
		}
		pf := policyFiles{Policy: p, current: file("scaling_cur_freq")}
		if pf.current == nil {
			pf.current = file("cpuinfo_avg_freq")
		}
		for _, b := range boundFiles() {
			if a := file(b.file); a != nil {
				pf.bounds = append(pf.bounds, bound{b.limit, a})
			}
		}
		c.policies = append(c.policies, pf)
	}
	c.files.keep(used)
	if c.failed != nil {
		return fmt.Errorf("host: %w", c.failed)
	}
	return nil
}

func (c *clocks) poll(b *batch, _ Boot) ([]string, error) {
	if since := b.now.Sub(c.last); since >= 0 && since < clocksEvery-clocksEvery/10 {
		return nil, nil
	}
	c.last = b.now
	c.errs = map[string]error{}
	sum, cpus := map[int]float64{}, map[int]float64{}
	var failed []error
	fail := func(p policyFiles, err error) {
		if c.errs[p.ID] == nil {
			c.errs[p.ID] = err
		}
		failed = append(failed, fmt.Errorf("host: %s: %w", p.ID, err))
	}
	for _, p := range c.policies {
		cpu := strconv.Itoa(p.CPU)
		if p.current != nil {
			if hz, err := hertz(p.current); err != nil {
				fail(p, err)
			} else {
				b.value("system.cpu.frequency", hz, "cpu.logical_number", cpu)
				sum[p.Socket] += hz * float64(len(p.CPUs))
				cpus[p.Socket] += float64(len(p.CPUs))
			}
		}
		for _, limit := range p.bounds {
			hz, err := hertz(limit.file)
			if err != nil {
				fail(p, err)
				continue
			}
			attrs := []string{"hw.type", "cpu", "hw.id", "", "cpu.logical_number", cpu, "hw.limit_type", limit.limit}
			if p.Socket >= 0 {
				attrs[3] = "cpu" + strconv.Itoa(p.Socket)
			}
			b.value("hw.cpu.speed.limit", hz, attrs...)
		}
	}
	for _, socket := range sortedKeys(sum) {
		if socket >= 0 {
			b.value("hw.cpu.speed", sum[socket]/cpus[socket], "hw.type", "cpu", "hw.id", "cpu"+strconv.Itoa(socket))
		}
	}
	return nil, errors.Join(failed...)
}

// hertz reads kilohertz. A driver once gave megahertz beside them: no CPU is
// as slow as that would be.
func hertz(a *attribute) (float64, error) {
	khz, err := a.number()
	if err != nil {
		return 0, err
	}
	if khz < 10_000 {
		return 0, fmt.Errorf("%s holds %g: no clock in kilohertz", a.path, khz)
	}
	return khz * 1000, nil
}

func (c *clocks) findings() []Finding {
	const source = "devices/system/cpu/cpufreq"
	if len(c.policies) == 0 && c.failed == nil {
		return []Finding{absent(KindCPUFreq, source, "the kernel has no cpufreq driver for this CPU",
			"load one (acpi_cpufreq, cppc_cpufreq), or take intel_pstate=disable off the command line; a virtual machine has none")}
	}
	var drivers []string
	for _, p := range c.policies {
		if p.Driver != "" && !slices.Contains(drivers, p.Driver) {
			drivers = append(drivers, p.Driver)
		}
	}
	var out []Finding
	if fine := len(c.policies) - len(c.errs); fine > 0 {
		policies := "policies"
		if fine == 1 {
			policies = "policy"
		}
		out = append(out, found(KindCPUFreq, strings.TrimSpace(fmt.Sprintf("%d %s %s", fine, policies, strings.Join(drivers, " "))), source, nil))
	}
	for _, p := range c.policies {
		if err := c.errs[p.ID]; err != nil {
			out = append(out, found(KindCPUFreq, p.ID, p.Path, err))
		}
	}
	if c.failed != nil {
		out = append(out, found(KindCPUFreq, "some policies", source, c.failed))
	}
	return out
}

func sortedKeys(m map[int]float64) []int {
	var keys []int
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
