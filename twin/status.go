package twin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// Twin is a NodeTwin.
type Twin struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       *Spec    `json:"spec,omitempty"`
	Status     Status   `json:"status"`
}

// Status is what is known of a node. ControlStatus is the contract; the rest may
// grow (S0-191).
type Status struct {
	PowerMeasurement PowerMeasurement `json:"powerMeasurement"`
	ControlStatus    ControlStatus    `json:"controlStatus"`
	SpecError        string           `json:"specError,omitempty"` // why a newer target is not taken, or this one not resolved
	LastUpdated      *time.Time       `json:"lastUpdated"`         // the step that this is of, null before the first
}

// Sources of a power measurement (S0-177).
const (
	SourceStore     = "prometheus"
	SourceNoData    = "prometheus-no-data"
	SourceHTTP      = "http"
	SourceHTTPError = "http-error"
	SourceNone      = "none"
)

// PowerMeasurement is the power of a node. A field without a value is absent: it
// was not read. The one 0 W of this program that means nothing is here: the wire
// of Joulie's controller has it while an HTTP source warms up (S0-69; X4).
type PowerMeasurement struct {
	Source             string   `json:"source"`
	MeasuredNodePowerW *float64 `json:"measuredNodePowerW,omitempty"`
	CPUPowerW          *float64 `json:"cpuPowerW,omitempty"` // the packages alone, another reading (X5)
	Scope              string   `json:"scope,omitempty"`     // components, host or producer-defined
	Preset             string   `json:"preset,omitempty"`
	Quality            string   `json:"quality"`
	Partial            bool     `json:"partial"`
	AgeSeconds         *float64 `json:"ageSeconds,omitempty"` // of the oldest component
	Message            string   `json:"message,omitempty"`
}

// ControlStatus is what became of the intents on the paths of a node (S0-12,
// S0-22, S0-190).
type ControlStatus struct {
	CPU ControlPath `json:"cpu"`
	GPU ControlPath `json:"gpu"`
}

// ControlPath is one of them. Desired, Granted and Applied are the lowest over the
// devices, absent while no intent is selected: then Result is none (S0-11).
type ControlPath struct {
	Backend string       `json:"backend"` // host or none
	Control string       `json:"control,omitempty"`
	Action  string       `json:"action,omitempty"`
	Desired *float64     `json:"desired,omitempty"`
	Granted *float64     `json:"granted,omitempty"`
	Applied *float64     `json:"applied,omitempty"`
	Result  string       `json:"result"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Devices []PathDevice `json:"devices"`
	TS      *time.Time   `json:"ts,omitempty"`
}

// PathDevice is one device of a path.
type PathDevice struct {
	ID      string   `json:"id"`
	Desired *float64 `json:"desired,omitempty"`
	Granted *float64 `json:"granted,omitempty"`
	Applied *float64 `json:"applied,omitempty"`
	Result  string   `json:"result"`
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message,omitempty"`
}

// Wiring is how this process reads and acts: where node power comes from and what
// the control paths write to. It says nothing of the hardware (S0-3).
type Wiring struct {
	Source  string            // prometheus, http or none
	Scope   string            // components or host
	Preset  string            // of node_power
	Backend map[string]string // of each path, host or none
	// Failed is why the last question over HTTP for a node got no answer, "" where
	// it got one. nil without such a source.
	Failed func(node string) string
	// Warming says that the last answer for a node had a counter without a rate. nil
	// without such a source.
	Warming func(node string) bool
	// ScopeOf is what the last answer for a node says of its scope, "" where that is
	// Scope. nil without such a source.
	ScopeOf func(node string) string
}

// Local is what the machine itself adds to its own node.
type Local struct {
	Node      string
	Spec      *Spec
	SpecError string
	Targets   map[string]Target // what Spec resolves to, by path
}

// New makes the NodeTwin of a node out of a report.
func New(node string, rep *engine.Report, w Wiring, local Local) Twin {
	return made(node, rep, readingsOf(rep), w, local)
}

// All makes that of every node.
func All(rep *engine.Report, w Wiring, local Local) []Twin {
	readings := readingsOf(rep)
	var out []Twin
	for _, node := range Nodes(rep, local.Node) {
		out = append(out, made(node, rep, readings, w, local))
	}
	return out
}

func made(node string, rep *engine.Report, readings nodeReadings, w Wiring, local Local) Twin {
	t := Twin{APIVersion: apiVersion, Kind: kindTwin, Metadata: Metadata{node}}
	t.Status.PowerMeasurement = readings.power(node, w)
	t.Status.ControlStatus = ControlStatus{CPU: path(PathCPU, w), GPU: path(PathGPU, w)}
	if rep.TS != 0 {
		at := time.UnixMilli(rep.TS).UTC()
		t.Status.LastUpdated = &at
	}
	if node != local.Node {
		return t
	}
	t.Spec = local.Spec
	t.Status.ControlStatus.CPU.fill(PathCPU, rep, local.Targets[PathCPU])
	t.Status.ControlStatus.GPU.fill(PathGPU, rep, local.Targets[PathGPU])
	t.Status.SpecError = cmp.Or(local.SpecError, local.Targets[PathCPU].Why, local.Targets[PathGPU].Why)
	return t
}

// Nodes are those that a report names, sorted, and this machine's.
func Nodes(rep *engine.Report, own string) []string {
	nodes := []string{own}
	for _, r := range rep.Readings {
		if r.Name == NodePower && !r.Keyless && keyValue(r.Key) != "" {
			nodes = append(nodes, keyValue(r.Key))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// nodeReadings are those of a report that are of nodes, by name and node.
type nodeReadings map[[2]string]*engine.ReadingReport

// everyNode stands for the nodes that a reading in error has no row of. It is no
// node's name.
const everyNode = "*"

func readingsOf(rep *engine.Report) nodeReadings {
	out := nodeReadings{}
	for _, r := range rep.Readings {
		if r.Name != NodePower && r.Name != cpuPower || r.Keyless && r.Err == "" {
			continue
		}
		node := keyValue(r.Key)
		if r.Keyless {
			node = everyNode
		}
		out[[2]string{r.Name, node}] = r
	}
	return out
}

// find is a reading for one node. One that nothing is known of is missing, with
// the error if there was one.
func (all nodeReadings) find(name, node string) *engine.ReadingReport {
	if r, ok := all[[2]string{name, node}]; ok {
		return r
	}
	if r, ok := all[[2]string{name, everyNode}]; ok {
		return r
	}
	return &engine.ReadingReport{KeyReading: rules.KeyReading{Quality: rules.Missing, Why: "no series matches"}}
}

func (all nodeReadings) power(node string, w Wiring) PowerMeasurement {
	r := all.find(NodePower, node)
	read := r.Valid && r.Quality == rules.Fresh
	p := PowerMeasurement{Scope: w.Scope, Preset: w.Preset, Quality: string(r.Quality), Partial: r.Partial, Message: cmp.Or(r.Err, r.Why)}
	switch w.Source {
	case SourceNone:
		return PowerMeasurement{Source: SourceNone, Quality: string(rules.Missing), Message: "no source of node power is configured"}
	case SourceHTTP:
		p.Source = SourceHTTP
		if w.ScopeOf != nil {
			p.Scope = cmp.Or(w.ScopeOf(node), p.Scope)
		}
		failed := ""
		if w.Failed != nil {
			failed = w.Failed(node)
		}
		if !read && failed == "" && w.Warming != nil && w.Warming(node) {
			p.Quality = string(rules.Warming)
		}
		switch {
		case failed != "" || !read && p.Quality != string(rules.Warming):
			p.Source, p.Message, read = SourceHTTPError, cmp.Or(failed, p.Message), false
		case !read:
			p.MeasuredNodePowerW = new(float64) // S0-69, and nowhere else
		}
	default:
		p.Source = SourceStore
		if !read {
			p.Source = SourceNoData
		}
	}
	if read {
		p.MeasuredNodePowerW = number(r.Value)
		p.AgeSeconds = number(r.Age.Seconds())
	}
	if c := all.find(cpuPower, node); c.Valid && c.Quality == rules.Fresh {
		p.CPUPowerW = number(c.Value)
	}
	return p
}

func path(name string, w Wiring) ControlPath {
	return ControlPath{Backend: w.Backend[name], Result: actuate.None, Devices: []PathDevice{}}
}

// PathOf is the path that an action goes.
func PathOf(action string) string {
	if strings.HasPrefix(action, "gpu.") {
		return PathGPU
	}
	return PathCPU
}

// fill takes the outcomes of a path: for each device that of the control whose
// value is on it, else the worst of those that wanted it.
func (p *ControlPath) fill(name string, rep *engine.Report, target Target) {
	owner := map[string]string{} // device -> control and key
	for _, d := range rep.Devices {
		if d.Owner != "" {
			owner[d.ID] = d.Owner + d.Key
		}
	}
	stands := map[string]actuate.Outcome{}
	for _, o := range rep.Outcomes {
		if PathOf(o.Action) != name {
			continue
		}
		was, ok := stands[o.Device]
		switch {
		case !ok, owner[o.Device] == o.Control+o.Key:
			stands[o.Device] = o
		case owner[o.Device] == was.Control+was.Key:
		case actuate.Summarize([]actuate.Outcome{was, o}) != was.Result:
			stands[o.Device] = o
		}
	}
	var chosen []actuate.Outcome
	for _, o := range stands {
		if o.Result != actuate.None {
			chosen = append(chosen, o)
		}
	}
	slices.SortFunc(chosen, func(a, b actuate.Outcome) int { return strings.Compare(a.Device, b.Device) })
	if len(chosen) == 0 {
		p.unanswered(name, target)
		return
	}
	p.take(chosen)
}

// unanswered is a path without an outcome. A target that no rule can act upon is
// blocked, never in silence (S0-184).
func (p *ControlPath) unanswered(name string, target Target) {
	switch {
	case target.Watts == 0:
	case p.Backend == "none":
		p.Desired = number(target.Watts)
		p.block("control_none", fmt.Sprintf("control.%s is none: nothing is written", name))
	case name == PathGPU:
		p.Action, p.Desired = actuate.ActionGPUCap, number(target.Watts)
		p.block(actuate.ReasonNoDevice, "this version has no actuator of GPUs")
	}
}

func (p *ControlPath) block(reason, message string) {
	p.Result, p.Reason, p.Message = actuate.Blocked, reason, message
}

func (p *ControlPath) take(all []actuate.Outcome) {
	p.Result = actuate.Summarize(all)
	var ts int64
	for _, o := range all {
		d := PathDevice{ID: o.Device, Desired: number(o.Desired), Result: o.Result, Reason: o.Reason, Message: o.Message}
		if o.Device != "" {
			d.Granted, d.Applied = number(o.Granted), number(o.Applied)
			p.Devices = append(p.Devices, d)
		}
		if o.Result == p.Result && p.Control == "" {
			p.Control, p.Action, p.Reason, p.Message = o.Control, o.Action, o.Reason, o.Message
		}
		p.Desired, p.Granted, p.Applied = lowest(p.Desired, d.Desired), lowest(p.Granted, d.Granted), lowest(p.Applied, d.Applied)
		ts = max(ts, o.TS)
	}
	if ts != 0 {
		at := time.UnixMilli(ts).UTC()
		p.TS = &at
	}
	if p.Backend == "none" {
		p.block("control_none", fmt.Sprintf("control.%s is none: nothing is written", PathOf(p.Action)))
	}
}

func lowest(a, b *float64) *float64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// number is nil for what JSON has no word for.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
