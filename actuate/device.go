package actuate

// Description says what a device is and what may be asked of it.
// A limit that the hardware does not state is 0, which means unknown, never "0 W".
type Description struct {
	ID        string            `json:"id"`     // stable over boots: "rapl:package-0"
	Name      string            `json:"name"`   // as telemetry names it: "cpu0"
	Action    string            `json:"action"` // the intent it answers: "rapl.set_power_cap_watts"
	Unit      string            `json:"unit"`   // of every value: "W"
	Labels    map[string]string `json:"labels"` // what a control's target matches: hw_type, hw_id
	Min       float64           `json:"min"`
	Max       float64           `json:"max"`
	Default   float64           `json:"default"`
	Tolerance float64           `json:"tolerance"` // a read-back this close to the value asked is the value
	Files     []string          `json:"files"`     // every file that a write may touch, relative to the sysfs root
	Writable  bool              `json:"writable"`
	Reason    string            `json:"reason,omitempty"` // why it is not writable, with the file's name
}

// State is what a device holds at one moment. Files keeps the raw contents, so
// that a restore puts back exactly what was there.
type State struct {
	Value float64           `json:"value"`
	Files map[string]string `json:"files"`
}

// Setting is one value to write.
type Setting struct {
	Value float64
	// Strict asks that every limit of the device is brought down to the value,
	// the short-term one included (a control whose purpose is protection).
	Strict bool
}

// Device is one knob of the hardware. Its methods are called by one goroutine
// at a time; an error of Write may leave the device half written, and the
// caller reads it back. Describe looks at the device each time for Writable and
// Reason, which may change; the rest of a Description is the same while the
// device is there.
type Device interface {
	Describe() Description
	Read() (State, error)
	Write(Setting) error
	Restore(State) error
}
