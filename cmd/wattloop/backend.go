package main

import (
	"fmt"
	"log/slog"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/twin"
)

// What the intents of a control path go to.
const (
	backendHost = "host" // this machine's own interfaces
	backendNone = "none" // nothing is written
	backendHTTP = "http"
)

// backendValue is one of them, as this version has them (S0-8).
type backendValue struct{ p *string }

func backend(p *string) backendValue { return backendValue{p} }

func (v backendValue) String() string { return *v.p }
func (v backendValue) Type() string   { return "host|none" }
func (v backendValue) Set(s string) error {
	switch s {
	case backendHost, backendNone:
		*v.p = s
		return nil
	case backendHTTP:
		return fmt.Errorf("%q: intents over HTTP are not in this version; want host, or none to write nothing", s)
	}
	return fmt.Errorf("%q is none of host, none", s)
}

// backends is what each control path writes to.
func (c *config) backends() map[string]string {
	return map[string]string{twin.PathCPU: c.ControlCPU, twin.PathGPU: c.ControlGPU}
}

// unwired is a device whose control path is none. It can be given back what it held
// before, and nothing else is written to it.
type unwired struct {
	actuate.Device
	why string
}

// Describe says of the device that it cannot be written.
func (d unwired) Describe() actuate.Description {
	out := d.Device.Describe()
	out.Writable, out.Reason = false, d.why
	return out
}

// Write refuses.
func (d unwired) Write(actuate.Setting) error {
	return fmt.Errorf("%s: %s", d.Device.Describe().ID, d.why)
}

// wired are the devices as control.cpu and control.gpu have them.
func (c *config) wired(devs []actuate.Device, log *slog.Logger) []actuate.Device {
	out := make([]actuate.Device, len(devs))
	none := map[string]bool{}
	for i, d := range devs {
		out[i] = d
		if path := twin.PathOf(d.Describe().Action); c.backends()[path] == backendNone {
			out[i], none[path] = unwired{d, fmt.Sprintf("control.%s is none, nothing is written", path)}, true
		}
	}
	for _, path := range sortedKeys(none) {
		key := "control." + path
		log.Info("a control path is off, nothing is written there", "key", key, "origin", c.origin[key])
	}
	return out
}
