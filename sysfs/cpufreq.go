package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const cpus = "devices/system/cpu"

// Policy is one cpufreq policy: CPUs that change their clock together
// (Documentation/admin-guide/pm/cpufreq.rst). Its files hold kilohertz.
type Policy struct {
	ID     string `json:"id"`     // policy0; cpu0 where a kernel lists it below the CPU alone
	Path   string `json:"path"`   // of its directory, relative to the root
	CPU    int    `json:"cpu"`    // the lowest of CPUs
	CPUs   []int  `json:"cpus"`   // that it governs, sorted
	Socket int    `json:"socket"` // of CPU; -1 is unknown
	Driver string `json:"driver"` // intel_pstate, amd-pstate-epp, acpi-cpufreq; "" is unknown
}

// File returns the path of one of the policy's files, relative to the root.
func (p Policy) File(name string) string { return path.Join(p.Path, name) }

// Policies finds the cpufreq policies of a machine, each once, sorted by CPU:
// cpuN/cpufreq lists again what cpufreq/policyN does, as a link or, in old
// kernels and in copies of trees, as a directory. A machine without cpufreq has
// none and no error. A policy that cannot be listed is in the error, beside the
// others.
func Policies(f FS) ([]Policy, error) {
	numbers, err := numbered(f, cpus, "cpu")
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	governed := map[int]bool{}
	var found []Policy
	var failed []error
	add := func(id, dir string, cpu int) {
		p, err := policy(f, id, dir, cpu)
		switch {
		case errors.Is(err, fs.ErrNotExist): // this CPU has none
			return
		case err != nil:
			failed = append(failed, fmt.Errorf("sysfs: %w", err))
			return
		}
		for _, n := range p.CPUs {
			governed[n] = true
		}
		found = append(found, p)
	}
	own, err := numbered(f, cpus+"/cpufreq", "policy")
	if err != nil {
		failed = append(failed, fmt.Errorf("sysfs: %w", err))
	}
	for _, n := range own {
		add("policy"+strconv.Itoa(n), fmt.Sprintf("%s/cpufreq/policy%d", cpus, n), n)
	}
	for _, n := range numbers {
		if !governed[n] {
			add("cpu"+strconv.Itoa(n), fmt.Sprintf("%s/cpu%d/cpufreq", cpus, n), n)
		}
	}
	slices.SortFunc(found, func(a, b Policy) int { return cmp.Compare(a.CPU, b.CPU) })
	return found, errors.Join(failed...)
}

// policy reads what does not change of one. It governs the CPUs of related_cpus;
// where that file is missing, empty or leaves out the CPU that the policy is
// named for, that CPU alone.
func policy(f FS, id, dir string, cpu int) (Policy, error) {
	if _, err := f.ReadDir(dir); err != nil {
		return Policy{}, err
	}
	p := Policy{ID: id, Path: dir, CPU: cpu, CPUs: []int{cpu}}
	if text, err := f.ReadString(p.File("related_cpus")); err == nil {
		if list := cpuList(text); slices.Contains(list, cpu) {
			p.CPU, p.CPUs = list[0], list
		}
	}
	if text, err := f.ReadString(p.File("scaling_driver")); err == nil {
		p.Driver = strings.TrimSpace(text)
	}
	p.Socket = Socket(f, p.CPU)
	return p, nil
}

// Socket is the package that a CPU is in, -1 where the tree does not say.
func Socket(f FS, cpu int) int {
	text, err := f.ReadString(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpus, cpu))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// cpuList reads numbers parted by spaces or commas, and ranges: "0 4-6". Text
// that is none gives nothing.
func cpuList(text string) []int {
	var out []int
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		from, to, isRange := strings.Cut(word, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || a < 0 || b < a || b-a >= maxEntries-len(out) {
			return nil
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// numbered lists the numbers of the entries prefixN in dir, sorted; none where
// the directory is missing.
func numbered(f FS, dir, prefix string) ([]int, error) {
	names, err := f.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if digits, ok := strings.CutPrefix(name, prefix); ok {
			if n, err := strconv.Atoi(digits); err == nil && n >= 0 {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
