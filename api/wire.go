package api

import (
	"time"

	"github.com/wattloop/wattloop/engine"
)

// The types of this file are a promise to clients; docs/api.md describes them.

// Facts are what the process knows of itself.
type Facts struct {
	Version     string       `json:"version"`
	Node        string       `json:"node"`
	WardenPID   int          `json:"warden_pid"`
	EnginePID   int          `json:"engine_pid"`
	Started     time.Time    `json:"started"`
	Durability  string       `json:"durability"`
	Series      uint64       `json:"series"`                // in the head of the TSDB
	StoreError  string       `json:"store_error,omitempty"` // why no samples are taken
	SumsError   string       `json:"sums_error,omitempty"`  // why no increments are taken
	Integrity   []Loss       `json:"integrity"`
	Channels    []Channel    `json:"channels"`
	Targets     []Target     `json:"targets"`                // the exporters whose pages are read
	Pulls       []Pull       `json:"pulls"`                  // the endpoints that are asked
	Relay       []Relay      `json:"relay"`                  // empty without an upstream
	Meters      []Meter      `json:"meters"`                 // of this machine, empty where host.enabled is false
	Doubts      []Doubt      `json:"doubts"`                 // what is known to make readings wrong
	Remote      *Remote      `json:"remote,omitempty"`       // absent without storage.remote
	RemoteWrite *RemoteWrite `json:"remote_write,omitempty"` // absent without storage.remote_write
	RulesError  string       `json:"rules_error,omitempty"`  // why the last reload was refused
	TargetError string       `json:"target_error,omitempty"` // why the newest target of this node is not taken
	// Unused says of rules, by name, why nobody can expect an answer of them: what
	// they read is not set up. It holds of the readings and controls without one.
	Unused map[string]string `json:"unused"`
}

// Doubt is something that makes the readings of a node wrong, though each of them
// is what its query says: mirrored_energy_counter, no_gpu_energy.
type Doubt struct {
	Kind string `json:"kind"`
	Node string `json:"node"`
	What string `json:"what"`
}

// Loss is a time range whose samples may be missing, and why.
type Loss struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Why  string    `json:"why"`
}

// Meter is one of this machine's, or a kind of meters that it has none of. What
// is not readable is absent from the samples, never zero.
type Meter struct {
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	Source   string `json:"source,omitempty"`
	Found    bool   `json:"found"`
	Readable bool   `json:"readable"`
	Reason   string `json:"reason,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Channel is one door that samples come in through. LagSeconds is the age of
// the newest point when it was stored, -1 before the first.
type Channel struct {
	Name string `json:"name"`
	// Class is node or workload; Addresses are where it listens, or would.
	Class     string   `json:"class"`
	Addresses []string `json:"addresses"`
	// Live says that it takes requests; the rest of an activation is that of the
	// live one, absent on a node channel.
	Live     bool       `json:"live"`
	Identity *Identity  `json:"identity,omitempty"`
	Started  *time.Time `json:"started,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Error    string     `json:"error,omitempty"` // why it does not accept, or why the last activation failed

	Accepted   uint64  `json:"accepted"`
	Folded     uint64  `json:"folded"`
	Rejected   uint64  `json:"rejected"`
	LagSeconds float64 `json:"lag_seconds"`
	// Lagging says that most requests come later than a tenth of the export
	// interval; IntervalSeconds is that interval, 0 while it is unknown.
	Lagging         bool    `json:"lagging"`
	IntervalSeconds float64 `json:"interval_seconds"`
	Windows         Windows `json:"windows"`
}

// Windows are the intervals of a channel's delta and cumulative streams that were
// not simply added, as in wattloop_ingest_windows_total.
type Windows struct {
	Lost             uint64 `json:"lost"`
	Late             uint64 `json:"late"`
	Repeated         uint64 `json:"repeated"`
	Baseline         uint64 `json:"baseline"`
	BeforeActivation uint64 `json:"before_activation"`
}

// Target is one page of metrics that is read at intervals.
type Target struct {
	URL             string     `json:"url"`
	Job             string     `json:"job"`
	Instance        string     `json:"instance"`
	Health          string     `json:"health"` // up, down, or unknown before the first scrape
	IntervalSeconds float64    `json:"interval_seconds"`
	LastScrape      *time.Time `json:"last_scrape"`    // when it began; null before the first
	ScrapeSeconds   float64    `json:"scrape_seconds"` // how long it took
	Samples         int        `json:"samples"`        // on the last page
	Stored          int        `json:"stored"`         // of them
	NotStored       int        `json:"not_stored"`     // refused, or no reading by the exporter's own word
	Error           string     `json:"error,omitempty"`
}

// Pull is one endpoint that is asked for the power of a node.
type Pull struct {
	URL             string     `json:"url"`
	Role            string     `json:"role"` // agent or controller
	Node            string     `json:"node"`
	Quality         string     `json:"quality"` // fresh, unchanged, warming, missing; failed, or unknown before the first poll
	Watts           *Number    `json:"watts"`   // while fresh
	Scope           string     `json:"scope,omitempty"`
	IntervalSeconds float64    `json:"interval_seconds"`
	LastPoll        *time.Time `json:"last_poll"`     // null before the first
	Why             string     `json:"why,omitempty"` // it is not fresh
	Error           string     `json:"error,omitempty"`
}

// Relay is the way onward of one plane, platform or workload.
type Relay struct {
	Plane      string     `json:"plane"`
	Upstream   string     `json:"upstream"`
	QueueBytes int64      `json:"queue_bytes"` // that wait
	QueueLimit int64      `json:"queue_limit_bytes"`
	Sent       uint64     `json:"sent"`             // requests
	Dropped    uint64     `json:"dropped"`          // requests that the upstream refused for good
	Refused    uint64     `json:"refused"`          // requests that found no room
	Rejected   uint64     `json:"rejected"`         // points, spans and log records that the upstream rejected
	LostBytes  uint64     `json:"queue_lost_bytes"` // of the queue, that could not be read back
	Answering  bool       `json:"answering"`        // false until the upstream has taken one, and while it takes none
	Error      string     `json:"error,omitempty"`  // of the last attempt that failed
	ErrorAt    *time.Time `json:"error_at,omitempty"`
}

// RemoteWrite is where committed samples go on to. Samples are floats, histograms
// and exemplars.
type RemoteWrite struct {
	URL        string     `json:"url"`
	Message    string     `json:"message,omitempty"` // Remote Write 2.0 or 1.0, whichever was last taken; absent before one was
	QueueBytes int64      `json:"queue_bytes"`       // that wait
	QueueLimit int64      `json:"queue_limit_bytes"`
	Sent       uint64     `json:"sent"`             // samples
	Dropped    uint64     `json:"dropped"`          // samples that the receiver refused for good, or that found no room
	LostBytes  uint64     `json:"queue_lost_bytes"` // of the queue, that could not be read back
	Answering  bool       `json:"answering"`        // the receiver answered the last attempt with other than a wish to wait
	Error      string     `json:"error,omitempty"`  // of the last attempt that failed
	ErrorAt    *time.Time `json:"error_at,omitempty"`
}

// Remote is the engine that is read beside the store.
type Remote struct {
	URL       string     `json:"url"`
	Way       string     `json:"way,omitempty"` // remote read or queries, absent before the first answer
	OTLP      []Relay    `json:"otlp"`          // the way of what is received to it; empty where that is kept here
	Answering bool       `json:"answering"`     // the last question was answered
	Answers   uint64     `json:"answers"`
	Failures  uint64     `json:"failures"`
	Bytes     uint64     `json:"bytes"`
	Error     string     `json:"error,omitempty"` // of the last question that failed
	ErrorAt   *time.Time `json:"error_at,omitempty"`
}

// Status answers /api/v1/status/wattloop.
type Status struct {
	Facts
	UptimeSeconds float64    `json:"uptime_seconds"`
	Step          *time.Time `json:"step"` // of the last evaluation, null before the first
	Rules         []Rule     `json:"rules"`
	Readings      []Reading  `json:"readings"`
	Controls      []Control  `json:"controls"`
	Devices       []Device   `json:"devices"`
}

// Rule is how one rule's last evaluation went.
type Rule struct {
	Name        string  `json:"name"`
	Kind        string  `json:"kind"`
	EvalSeconds float64 `json:"eval_seconds"`
	Error       string  `json:"error,omitempty"`
	Cause       string  `json:"cause,omitempty"`    // of the error, where it is none of the rule's own
	LeftOut     string  `json:"left_out,omitempty"` // what of its answers is no answer
	File        string  `json:"file"`
	Line        int     `json:"line"`
}

// Reading is a reading for one key. Value is null when there is none, which is
// never 0.
type Reading struct {
	Name       string            `json:"name"`
	Key        map[string]string `json:"key"`
	Value      *Number           `json:"value"`
	Unit       string            `json:"unit"`
	Quality    string            `json:"quality"`
	Partial    bool              `json:"partial"`
	AgeSeconds float64           `json:"age_seconds"` // of the oldest component
	Error      string            `json:"error,omitempty"`
	Cause      string            `json:"cause,omitempty"` // of the error, where it is none of the rule's own
	Why        string            `json:"why,omitempty"`
	Note       string            `json:"note,omitempty"` // what to know of its answers, whatever their quality
}

// Control is a control for one key.
type Control struct {
	Name    string            `json:"name"`
	Key     map[string]string `json:"key"`
	Mode    string            `json:"mode"`
	Purpose string            `json:"purpose"`
	Action  string            `json:"action"`
	Phase   string            `json:"phase"`
	Value   *Number           `json:"value"` // asked for while engaged
	Quality string            `json:"quality"`
	Partial bool              `json:"partial"`
	Result  string            `json:"result"`
	Error   string            `json:"error,omitempty"` // why its expressions give no answer
	Cause   string            `json:"cause,omitempty"` // as of a reading
	Why     string            `json:"why,omitempty"`
	Devices []Outcome         `json:"devices"`
}

// Outcome is what became of a control on one device.
type Outcome struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Desired Number `json:"desired"`
	Granted Number `json:"granted"`
	Applied Number `json:"applied"`
	Result  string `json:"result"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Clamped bool   `json:"clamped,omitempty"`
	// ClampedTo is the limit that Desired was clamped to, null when it was not.
	ClampedTo *Number   `json:"clamped_to"`
	TS        time.Time `json:"ts"`
}

// Device is one knob of the hardware. Applied is what was read back last, null
// when it was never read.
type Device struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Action   string  `json:"action"`
	Unit     string  `json:"unit"`
	State    string  `json:"state"`
	Owner    string  `json:"owner,omitempty"`
	Desired  *Number `json:"desired"`
	Granted  *Number `json:"granted"`
	Applied  *Number `json:"applied"`
	Original *Number `json:"original"`
	// Enabled is the owner's actuation.enabled; Latched holds every control back
	// since caps restore, until caps resume.
	Enabled      bool    `json:"enabled"`
	Latched      bool    `json:"latched"`
	LeaseSeconds float64 `json:"lease_seconds"` // left of the owner's; 0 without a live one
	ClampedTo    *Number `json:"clamped_to"`    // the limit that the owner's Desired was clamped to, null when it was not
	Reason       string  `json:"reason,omitempty"`
}

// NewStatus puts a report into its wire form.
func NewStatus(rep *engine.Report, f Facts, now time.Time) Status {
	s := Status{Facts: f, UptimeSeconds: now.Sub(f.Started).Seconds(),
		Rules: []Rule{}, Readings: []Reading{}, Controls: []Control{}, Devices: []Device{}}
	if s.Integrity == nil {
		s.Integrity = []Loss{}
	}
	if s.Channels == nil {
		s.Channels = []Channel{}
	}
	if s.Meters == nil {
		s.Meters = []Meter{}
	}
	if s.Targets == nil {
		s.Targets = []Target{}
	}
	if s.Unused == nil {
		s.Unused = map[string]string{}
	}
	if s.Pulls == nil {
		s.Pulls = []Pull{}
	}
	if s.Relay == nil {
		s.Relay = []Relay{}
	}
	if rep.TS != 0 {
		t := time.UnixMilli(rep.TS).UTC()
		s.Step = &t
	}
	for _, r := range rep.Rules {
		s.Rules = append(s.Rules, Rule{r.Name, r.Kind, r.Took.Seconds(), r.Err, r.Cause, r.LeftOut, r.File, r.Line})
	}
	for _, r := range rep.Readings {
		w := Reading{Name: r.Name, Key: r.Key.Map(), Unit: r.Unit, Quality: string(r.Quality), Partial: r.Partial,
			AgeSeconds: r.Age.Seconds(), Error: r.Err, Cause: r.Cause, Why: r.Why, Note: r.Note}
		if r.Valid {
			w.Value = number(r.Value)
		}
		s.Readings = append(s.Readings, w)
	}
	for _, c := range rep.Controls {
		s.Controls = append(s.Controls, newControl(rep, c))
	}
	for _, d := range rep.Devices {
		s.Devices = append(s.Devices, newDevice(rep, d))
	}
	return s
}

func newControl(rep *engine.Report, c *engine.ControlReport) Control {
	w := Control{Name: c.Name, Key: c.Key.Map(), Mode: c.Mode, Purpose: c.Purpose, Action: c.Action, Phase: string(c.Phase),
		Quality: string(c.Quality), Partial: c.Partial, Result: c.Result, Error: c.Err, Cause: c.Cause, Why: c.Why, Devices: []Outcome{}}
	if c.Phase == engine.Engaged || c.Phase == engine.Holding {
		w.Value = number(c.Value)
	}
	for _, o := range c.Outcomes {
		w.Devices = append(w.Devices, Outcome{o.Device, o.Name, Number(o.Desired), Number(o.Granted), Number(o.Applied),
			o.Result, o.Reason, o.Message, o.Clamped, known(rep.ClampedTo(o)), time.UnixMilli(o.TS).UTC()})
	}
	return w
}

func newDevice(rep *engine.Report, d engine.Device) Device {
	w := Device{ID: d.ID, Name: d.Name, Action: d.Action, Unit: d.Unit, State: d.State, Owner: d.Owner, Reason: d.Reason,
		Enabled: d.Enabled, Latched: d.Latched, LeaseSeconds: float64(d.LeaseMillis) / 1000}
	if d.Known {
		w.Applied, w.Original = number(d.Current), number(d.Original)
	}
	if d.Owner != "" {
		w.Desired, w.Granted = number(d.Desired), number(d.Granted)
	}
	if o, ok := rep.Standing(d); ok {
		w.ClampedTo = known(rep.ClampedTo(o))
	}
	return w
}

func known(v float64, ok bool) *Number {
	if !ok {
		return nil
	}
	return number(v)
}

func number(v float64) *Number { n := Number(v); return &n }
