package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/actuate/rapl"
	"github.com/wattloop/wattloop/ingest/host"
	"github.com/wattloop/wattloop/sysfs"
)

// inventory is what check --hardware finds.
type inventory struct {
	Sysfs     string         `json:"sysfs"`
	Meters    []host.Finding `json:"meters"`
	Actuators []actuator     `json:"actuators"`
}

// actuator is one knob and whether it can be turned. Locked is yes, no or
// unknown; unknown shows at the first write.
type actuator struct {
	Kind     string   `json:"kind"`
	ID       string   `json:"id,omitempty"` // empty: the kind as a whole
	Name     string   `json:"name,omitempty"`
	Action   string   `json:"action"`
	Unit     string   `json:"unit,omitempty"`
	Found    bool     `json:"found"`
	Readable bool     `json:"readable"`
	Writable bool     `json:"writable"`
	Locked   string   `json:"locked"`
	Min      *float64 `json:"min"`     // null: the hardware states none
	Max      *float64 `json:"max"`     // null: the hardware states none
	Current  *float64 `json:"current"` // null: not readable
	Reason   string   `json:"reason,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`
}

// checkHardware looks at every meter and every actuator and writes to none.
func (c *config) checkHardware(ctx context.Context, w io.Writer, output string) error {
	devs, err := c.devices()
	if err != nil {
		return err
	}
	s := c.machine(time.Now)
	s.Export = func(context.Context, []byte) error { return nil }
	s.Poll(ctx) // what it cannot read is in the findings
	fs := sysfs.New(c.Sysfs)
	inv := inventory{Sysfs: c.Sysfs, Meters: s.Findings(), Actuators: actuators(fs, devs)}
	if output == "json" {
		err = writeIndented(w, inv)
	} else {
		err = inv.print(w)
	}
	if err != nil {
		return withCode(exitCannot, err)
	}
	if inv.faulty() {
		return withCode(exitFound, errSaid)
	}
	return nil
}

func actuators(fs sysfs.FS, devs []actuate.Device) []actuator {
	var out []actuator
	for _, d := range devs {
		desc := d.Describe()
		kind, _, _ := strings.Cut(desc.ID, ":")
		a := actuator{Kind: kind, ID: desc.ID, Name: desc.Name, Action: desc.Action, Unit: desc.Unit, Found: true,
			Writable: desc.Writable, Locked: locked(fs, desc), Reason: desc.Reason, Min: stated(desc.Min), Max: stated(desc.Max)}
		state, err := d.Read()
		if a.Readable = err == nil; a.Readable {
			a.Current = &state.Value
		} else {
			a.Reason = err.Error()
		}
		if a.Locked == "yes" {
			a.Reason, a.Remedy = "firmware has locked the limit", "unlock it in the machine's setup"
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = append(out, actuator{Kind: "rapl", Action: actuate.ActionRAPLCap, Locked: "unknown",
			Reason: "no CPU package here has a long-term power limit",
			Remedy: "modprobe intel_rapl_msr; AMD's packages and virtual machines have none"})
	}
	return out
}

func stated(v float64) *float64 {
	if v == 0 {
		return nil
	}
	return &v
}

// locked asks the registers of this machine, but not about another's tree.
func locked(fs sysfs.FS, d actuate.Description) string {
	socket, err := strconv.Atoi(strings.TrimPrefix(d.ID, "rapl:package-"))
	if err != nil || !sysfs.IsReal(fs.Root) {
		return "unknown"
	}
	switch l, known := rapl.Locked(fs, "/dev", socket); {
	case !known:
		return "unknown"
	case l:
		return "yes"
	}
	return "no"
}

// faulty is what the exit code says: something is there and cannot be used.
func (inv inventory) faulty() bool {
	for _, m := range inv.Meters {
		if m.Found && !m.Readable {
			return true
		}
	}
	for _, a := range inv.Actuators {
		if a.Found && (!a.Readable || !a.Writable || a.Locked == "yes") {
			return true
		}
	}
	return false
}

func (inv inventory) print(w io.Writer) error {
	fmt.Fprintf(w, "sysfs %s; nothing was written\n\n", inv.Sysfs)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "METER\tNAME\tFOUND\tREADABLE\tSOURCE\tWHAT TO DO")
	for _, m := range inv.Meters {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Kind, orDash(m.Name), yesNo(m.Found), yesNo(m.Readable), orDash(m.Source), orDash(whatToDo(m.Reason, m.Remedy)))
	}
	fmt.Fprintln(tw, "\nACTUATOR\tNAME\tFOUND\tREADABLE\tWRITABLE\tLOCKED\tNOW\tRANGE\tWHAT TO DO")
	for _, a := range inv.Actuators {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Kind, orDash(a.Name), yesNo(a.Found), yesNo(a.Readable), yesNo(a.Writable),
			a.Locked, amount(a.Current, a.Unit), orDash(a.limits()), orDash(whatToDo(a.Reason, a.Remedy)))
	}
	return tw.Flush()
}

func (a actuator) limits() string {
	if a.Min == nil && a.Max == nil {
		return ""
	}
	return amount(a.Min, "") + " to " + amount(a.Max, a.Unit)
}

func amount(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return strings.TrimSpace(strconv.FormatFloat(*v, 'f', -1, 64) + " " + unit)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
