package host

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Kinds of meters, as a Finding names them.
const (
	KindRAPL       = "rapl"
	KindCPUFreq    = "cpufreq"
	KindHwmon      = "hwmon"
	KindNVML       = "nvml"
	KindPressure   = "pressure"
	KindNetwork    = "network"
	KindInfiniBand = "infiniband"
)

// Finding is a meter of this machine and whether it can be read, or a kind of
// meters that it has none of. What cannot be read is absent from the metrics,
// never zero.
type Finding struct {
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`   // package-0, coretemp.0, gpu0, eth0; empty: the kind as a whole
	Source   string `json:"source,omitempty"` // the file, folder or library that it is read from
	Found    bool   `json:"found"`
	Readable bool   `json:"readable"`
	Reason   string `json:"reason,omitempty"` // why not, or what of it is missing
	Remedy   string `json:"remedy,omitempty"` // what a person can do
}

// title is how messages call it.
func (f Finding) title() string {
	if f.Name == "" {
		return f.Kind
	}
	return f.Kind + " " + f.Name
}

// absent is a kind that the machine has none of.
func absent(kind, source, reason, remedy string) Finding {
	return Finding{Kind: kind, Source: source, Reason: reason, Remedy: remedy}
}

// found is a meter, with what stands against reading it or nil.
func found(kind, name, source string, err error) Finding {
	f := Finding{Kind: kind, Name: name, Source: source, Found: true, Readable: err == nil}
	if err != nil {
		f.Reason, f.Remedy = strings.ReplaceAll(err.Error(), "\n", "; "), remedyOf(kind, err)
	}
	return f
}

// remedyOf is what a person can do about a meter that cannot be read.
func remedyOf(kind string, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission) && kind == KindRAPL:
		return "start wattloop serve as root: the kernel gives energy counters to root alone (CVE-2020-8694). Until then node power lacks it"
	case errors.Is(err, fs.ErrPermission):
		return "give engine.user the right to read it: the kernel ships it readable for all"
	case errors.Is(err, syscall.EOPNOTSUPP) && kind == KindPressure:
		return remedyPSI
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO), errors.Is(err, fs.ErrNotExist):
		return "the device is gone; it is looked for again every minute"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENODATA), errors.Is(err, syscall.ETIMEDOUT):
		return "the driver has no value now; it is asked again at every poll"
	case errors.Is(err, errNoNumber):
		return "the driver says nothing of it; nothing can be done here"
	}
	return "look at what the reason names; the rest is read all the same"
}

const remedyPSI = "boot with psi=1 on the kernel's command line, or a kernel with CONFIG_PSI"
