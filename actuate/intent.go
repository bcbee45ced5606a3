package actuate

import "time"

// Action names, as the contract spells them (S0-14, S0-15, S0-18).
const (
	ActionRAPLCap    = "rapl.set_power_cap_watts"
	ActionThrottle   = "dvfs.set_throttle_pct"
	ActionGPUCap     = "gpu.set_power_cap_watts"
	ModeObserve      = "observe"
	ModeEnforce      = "enforce"
	PurposeEfficient = "efficiency"
	PurposeProtect   = "protection"
)

// Result words of an outcome (S0-10).
const (
	Applied = "applied"
	Blocked = "blocked"
	Error   = "error"
	None    = "none"
)

// Kind says what an intent asks for.
type Kind string

const (
	Set     Kind = "set"     // bring the device to Value
	Keep    Kind = "keep"    // renew the lease at the value that stands
	Hold    Kind = "hold"    // input lost, purpose protection: keep the value, raise the alarm
	Release Kind = "release" // rise to the original by the slew, then give it back
	Restore Kind = "restore" // give the original back at once
)

// Slew bounds how fast a value moves. Zero fields take the governor's defaults.
type Slew struct {
	Down  float64       `json:"down"` // units a step, downwards
	Up    float64       `json:"up"`   // units a step, upwards
	Every time.Duration `json:"every"`
}

// Intent is what one control wants of the devices that its target matches. A
// control that is not engaged has no intent.
type Intent struct {
	Control string
	Key     string // the control's key, canonical: {k8s_node_name="worker-01"}
	Action  string
	Target  map[string]string
	Kind    Kind
	Value   float64
	Mode    string
	Purpose string
	TTL     time.Duration
	SafeCap float64
	OnStop  string // "" or "hold"
	Slew    Slew
	// Partial is true when a component of the input is absent: such an intent may
	// tighten, and neither raises nor releases.
	Partial bool
}

// Outcome is what became of one control's intent on one device. Applied is
// what was read back from the hardware.
type Outcome struct {
	Control string  `json:"control"`
	Key     string  `json:"key,omitempty"`
	Device  string  `json:"device"`
	Name    string  `json:"name"`
	Action  string  `json:"action"`
	Desired float64 `json:"desired"`
	Granted float64 `json:"granted"`
	Applied float64 `json:"applied"`
	Result  string  `json:"result"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	Clamped bool    `json:"clamped,omitempty"`
	Wrote   bool    `json:"-"`  // this step wrote the device for this control
	Ended   bool    `json:"-"`  // the control holds nothing on the device any more: given back and read back, or never held
	TS      int64   `json:"ts"` // Unix milliseconds
}
