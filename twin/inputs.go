package twin

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// Input is one of the inputs that Joulie's controller reads, and the reading that
// answers it.
type Input struct {
	Name     string // in joulie_twin_input_queries_total
	Title    string // in the start-up line: node_power, facility it_power
	Reading  string
	gauge    string // joulie_twin_facility_..., "" for none
	help     string
	keyLabel string // of the gauge, "" where the reading has no key
}

// NodePower is the name of the input that every node's power comes from, and of
// its reading.
const NodePower = "node_power"

// cpuPower is the reading of the packages alone.
const cpuPower = "cpu_power"

// Inputs are all of them (S0-79, S0-80).
func Inputs() []Input {
	facility := func(short, reading, gauge, help, keyLabel string) Input {
		return Input{"facility_" + short, "facility " + short, reading, "joulie_twin_facility_" + gauge, help, keyLabel}
	}
	return []Input{
		{Name: NodePower, Title: NodePower, Reading: NodePower},
		facility("ambient_temperature", "facility_ambient_temperature", "ambient_temperature_celsius", "Outdoor temperature of the facility.", ""),
		facility("it_power", "facility_it_power", "it_power_watts", "Power that the facility's machines draw.", ""),
		facility("cooling_power", "facility_cooling_power", "cooling_power_watts", "Power that the facility's cooling draws.", ""),
		facility("cooling_zone_temperature", "cooling_zone_temperature", "cooling_zone_temperature_celsius", "Temperature of a cooling zone.", "cooling_zone"),
		facility("rack_power", "rack_power", "rack_power_watts", "Power that a rack draws.", "rack"),
		facility("node_inlet_temperature", "node_inlet_temperature", "node_inlet_temperature_celsius", "Temperature of the air at a node's inlet.", "node"),
	}
}

// Results of a query (S0-175).
const (
	resultSuccess = "success" // every key that is known answered
	resultPartial = "partial" // some did, or one of them without all of its components
	resultNoData  = "no_data" // nothing answered
	resultError   = "error"   // the query failed, or a key came back twice (S0-88)
)

// Queries counts what every query of every input read, and says once a kind what
// to do where one reads nothing or not all. It is safe for concurrent use.
type Queries struct {
	total *prometheus.CounterVec
	log   *slog.Logger
	names map[string]string // of the inputs, by reading

	mu     sync.Mutex
	lacks  map[string]int64 // by input and result: since when, Unix milliseconds
	hinted map[string]bool  // kinds
}

// NewQueries makes the counter, in reg, with hints going to log.
func NewQueries(reg prometheus.Registerer, log *slog.Logger) *Queries {
	q := &Queries{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "joulie_twin_input_queries_total",
			Help: "Queries of the inputs node_power and facility by what they read.",
		}, []string{"input", "result"}),
		log: log, names: map[string]string{}, lacks: map[string]int64{}, hinted: map[string]bool{},
	}
	for _, in := range Inputs() {
		q.names[in.Reading] = in.Name
	}
	reg.MustRegister(q.total)
	return q
}

// Evaluated takes one evaluation of a reading at ts, Unix milliseconds. Readings
// that are no input count nothing.
func (q *Queries) Evaluated(reading string, ts int64, keys []rules.KeyReading, err error) {
	input, ok := q.names[reading]
	if !ok {
		return
	}
	result := resultOf(keys, err)
	q.total.WithLabelValues(input, result).Inc()
	q.hint(input, result, ts, keys, err)
}

func resultOf(keys []rules.KeyReading, err error) string {
	if err != nil {
		return resultError
	}
	read, lacking := false, false
	for _, k := range keys {
		if k.Err != "" {
			return resultError
		}
		fresh := k.Valid && k.Quality == rules.Fresh // what is stale was read before, and not now
		read = read || fresh
		lacking = lacking || !fresh || k.Partial
	}
	switch {
	case !read:
		return resultNoData
	case lacking:
		return resultPartial
	}
	return resultSuccess
}

// hintAfter is how long an input must lack something before a hint is worth
// reading: a producer that has just started has no rate yet.
const hintAfter = 60_000

// Kinds of hints (S0-173).
const (
	hintPromote  = "promote"
	hintReceive  = "receive"
	hintInstance = "instance"
)

var hints = map[string]string{
	hintPromote: "not every node answers: have k8s.node.name promoted (promote, otlp.promote_resource_attributes), " +
		"or set presets.node_power.attributes (PROMETHEUS_RESOURCE_ATTRIBUTES) to auto; a node that was taken away is forgotten after an hour",
	hintReceive: "nothing answers: see that producers reach this process (otlp.grpc.listen, otlp.http.listen; Prometheus needs --web.enable-otlp-receiver), " +
		"and that naming (PROMETHEUS_NAME_TRANSLATION) is the otlp.translation_strategy of where the samples are stored",
	hintInstance: "two producers are stored as one target, or a key comes back twice: give every producer its own service.instance.id",
}

func (q *Queries) hint(input, result string, ts int64, keys []rules.KeyReading, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range []string{resultPartial, resultNoData} {
		if id := input + " " + r; r != result {
			delete(q.lacks, id)
		} else if from, ok := q.lacks[id]; !ok || ts < from {
			q.lacks[id] = ts
		}
	}
	why, kind := hintOf(result, keys, err)
	if kind == "" || q.hinted[kind] {
		return
	}
	if from, waits := q.lacks[input+" "+result]; waits && ts-from < hintAfter {
		return
	}
	q.hinted[kind] = true
	q.log.Warn("hint", "input", input, "result", result, "why", why, "do", hints[kind])
}

// hintOf is the kind of hint that helps, "" where none does.
func hintOf(result string, keys []rules.KeyReading, err error) (why, kind string) {
	switch result {
	case resultNoData:
		if slices.ContainsFunc(keys, withoutNode) {
			return "an answer has no label " + nodeLabel, hintPromote
		}
		return "", hintReceive
	case resultPartial:
		lacks := false
		for _, k := range keys {
			if (!k.Valid || k.Partial) && (k.Nameless == "" || withoutNode(k)) {
				lacks, why = true, cmp.Or(why, k.Why)
			}
		}
		if !lacks {
			return "", "" // what is left out was told with its label
		}
		return why, hintPromote
	case resultError:
		if err != nil {
			why = err.Error()
		}
		for _, k := range keys {
			why = cmp.Or(why, k.Err)
		}
		for _, sign := range []string{"comes back", "many-to-many", "duplicate series"} {
			if strings.Contains(why, sign) {
				return why, hintInstance
			}
		}
	}
	return "", ""
}

// nodeLabel is the label that hintPromote is about.
const nodeLabel = "k8s_node_name"

func withoutNode(k rules.KeyReading) bool { return k.Nameless == nodeLabel }

// Facility shows the readings of the facility at /metrics. What is not fresh is
// absent: a gap is never zero (S0-176).
type Facility struct {
	report func() *engine.Report
	descs  map[string]*prometheus.Desc // by reading
}

// NewFacility makes the gauges out of the engine's reports.
func NewFacility(report func() *engine.Report) *Facility {
	f := &Facility{report, map[string]*prometheus.Desc{}}
	for _, in := range Inputs() {
		if in.gauge == "" {
			continue
		}
		var names []string
		if in.keyLabel != "" {
			names = []string{in.keyLabel}
		}
		f.descs[in.Reading] = prometheus.NewDesc(in.gauge, in.help, names, nil)
	}
	return f
}

// Describe implements prometheus.Collector.
func (f *Facility) Describe(out chan<- *prometheus.Desc) {
	for _, d := range f.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *Facility) Collect(out chan<- prometheus.Metric) {
	keyed := map[string]bool{}
	for _, in := range Inputs() {
		keyed[in.Reading] = in.keyLabel != ""
	}
	for _, r := range f.report().Readings {
		desc := f.descs[r.Name]
		if desc == nil || !r.Valid || r.Quality != rules.Fresh {
			continue
		}
		var values []string
		if keyed[r.Name] {
			values = []string{keyValue(r.Key)}
		}
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, r.Value, values...)
	}
}

// keyValue is the value of the one label of a key, whatever its name: the label
// of the node hangs on the preset.
func keyValue(key labels.Labels) string {
	value := ""
	key.Range(func(l labels.Label) { value = l.Value })
	return value
}
