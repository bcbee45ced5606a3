package twin

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/rules"
)

// Meter is the newest sample of one stored series, and the time between it and the
// one before, 0 where there is none.
type Meter struct {
	Labels   labels.Labels
	T        int64 // Unix milliseconds
	Interval int64 // milliseconds
	V        float64
}

// How old a sample may be that is served as the present: three times what lies
// between two samples of its series, within these bounds, in milliseconds.
const (
	freshAtLeast = 15_000
	// FreshAtMost is the most, so that nobody need look further back.
	FreshAtMost = 300_000
)

func (m Meter) fresh(now int64) bool {
	return now-m.T <= min(max(3*m.Interval, freshAtLeast), FreshAtMost)
}

// Served is the metrics of the hardware that a telemetry document has.
func Served() []names.Metric {
	return slices.DeleteFunc(names.Metrics(), func(m names.Metric) bool { return !strings.HasPrefix(m.Name, "hw.") })
}

// The HTTP input format: the JSON mapping of OTLP's ExportMetricsServiceRequest
// (S0-46, S0-47, S0-48).
type (
	export struct {
		ResourceMetrics []resourceMetrics `json:"resourceMetrics"`
	}
	resourceMetrics struct {
		Resource     resource       `json:"resource"`
		ScopeMetrics []scopeMetrics `json:"scopeMetrics"`
	}
	resource struct {
		Attributes []keyString `json:"attributes"`
	}
	scopeMetrics struct {
		Metrics []metric `json:"metrics"`
	}
	metric struct {
		Name  string `json:"name"`
		Unit  string `json:"unit"`
		Sum   *data  `json:"sum,omitempty"`
		Gauge *data  `json:"gauge,omitempty"`
	}
	data struct {
		Temporality int     `json:"aggregationTemporality,omitempty"`
		Monotonic   bool    `json:"isMonotonic,omitempty"`
		Points      []point `json:"dataPoints"`
	}
	point struct {
		Attributes []keyString `json:"attributes"`
		Time       string      `json:"timeUnixNano"`
		Value      float64     `json:"asDouble"`
	}
	keyString struct {
		Key   string     `json:"key"`
		Value textString `json:"value"`
	}
	textString struct {
		Text string `json:"stringValue"`
	}
)

const cumulative = 2

// Telemetry is the document of a node, made of its meters as they are stored under
// a naming (S0-23). What is not fresh at now, Unix milliseconds, and what is no
// number is left out: a gap is no 0. The store keeps no start times, so a point has
// none.
func Telemetry(meters []Meter, naming names.Strategy, now int64) ([]byte, error) {
	doc := export{ResourceMetrics: []resourceMetrics{}}
	kinds := map[string]names.Metric{}
	for _, m := range Served() {
		kinds[m.Stored(naming)] = m
	}
	meters = slices.Clone(meters)
	slices.SortFunc(meters, func(a, b Meter) int { return labels.Compare(a.Labels, b.Labels) })
	places := map[string]int{}
	for _, s := range meters {
		kind, ok := kinds[s.Labels.Get("__name__")]
		if !ok || !s.fresh(now) || math.IsNaN(s.V) || math.IsInf(s.V, 0) {
			continue
		}
		of, own := attributesOf(s.Labels, naming)
		key, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		at, there := places[string(key)]
		if !there {
			at = len(doc.ResourceMetrics)
			places[string(key)] = at
			doc.ResourceMetrics = append(doc.ResourceMetrics, resourceMetrics{resource{of}, []scopeMetrics{{}}})
		}
		doc.ResourceMetrics[at].ScopeMetrics[0].add(kind, point{own, strconv.FormatInt(s.T*1e6, 10), s.V})
	}
	return json.Marshal(doc)
}

func (sm *scopeMetrics) add(kind names.Metric, p point) {
	i := slices.IndexFunc(sm.Metrics, func(m metric) bool { return m.Name == kind.Name })
	if i < 0 {
		i = len(sm.Metrics)
		m := metric{Name: kind.Name, Unit: kind.Unit}
		if kind.Kind == names.Gauge {
			m.Gauge = &data{}
		} else {
			m.Sum = &data{Temporality: cumulative, Monotonic: kind.Kind == names.Counter}
		}
		sm.Metrics = append(sm.Metrics, m)
	}
	to := cmp.Or(sm.Metrics[i].Sum, sm.Metrics[i].Gauge)
	to.Points = append(to.Points, p)
}

// attributesOf are the labels of a series as its producer has written them: those
// of the resource, and those of the point.
func attributesOf(ls labels.Labels, naming names.Strategy) (of, own []keyString) {
	sent := map[string]string{}
	for _, a := range names.Attributes() {
		sent[a.Stored(naming)] = a.Name
	}
	own = []keyString{}
	ls.Range(func(l labels.Label) {
		name := cmp.Or(sent[l.Name], l.Name)
		switch {
		case l.Name == "__name__":
		case l.Name == "job":
			space, service, both := strings.Cut(l.Value, "/")
			if !both {
				space, service = "", l.Value
			} else {
				of = append(of, keyString{"service.namespace", textString{space}})
			}
			of = append(of, keyString{"service.name", textString{service}})
		case l.Name == "instance":
			of = append(of, keyString{"service.instance.id", textString{l.Value}})
		case name == "k8s.node.name", name == "host.name":
			of = append(of, keyString{name, textString{l.Value}})
		default:
			own = append(own, keyString{name, textString{l.Value}})
		}
	})
	return of, own
}

// legacy is the JSON that goes away (S0-38). A value that was not read is absent.
type legacy struct {
	Power *float64   `json:"packagePowerWatts,omitempty"`
	CPU   *legacyCPU `json:"cpu,omitempty"`
}

type legacyCPU struct {
	Power *float64 `json:"packagePowerWatts,omitempty"`
}

// Legacy is a node's power in the legacy JSON: of the CPU packages and GPUs, unless
// node_power is the whole host's, and of the packages alone. known is false for a
// node that neither reading has.
func Legacy(node string, rep *engine.Report, w Wiring) (doc []byte, known bool, err error) {
	var out legacy
	all := readingsOf(rep)
	watts := func(name string) (*float64, bool) {
		r, has := all[[2]string{name, node}]
		known = known || has
		if !has || !r.Valid || r.Quality != rules.Fresh {
			return nil, false
		}
		return number(r.Value), true
	}
	if power, ok := watts(NodePower); ok && w.Scope != "host" {
		out.Power = power
	}
	if power, ok := watts(cpuPower); ok {
		out.CPU = &legacyCPU{power}
	}
	doc, err = json.Marshal(out)
	return doc, known, err
}
