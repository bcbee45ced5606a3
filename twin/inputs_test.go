package twin

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

func keyOf(node string) labels.Labels { return labels.FromStrings("k8s_node_name", node) }

func fresh(node string, watts float64) rules.KeyReading {
	return rules.KeyReading{Key: keyOf(node), Value: watts, Valid: true, Quality: rules.Fresh}
}

func missing(node string) rules.KeyReading {
	return rules.KeyReading{Key: keyOf(node), Quality: rules.Missing, Why: "no answer"}
}

func twice(node string) rules.KeyReading {
	return rules.KeyReading{Key: keyOf(node), Quality: rules.Fresh, Err: "comes back 2 times: aggregate the labels beside the key away"}
}

// S0-84, S0-85, S0-88, S0-174, S0-175: every query of an input counts once, with
// one of four words.
func TestQueriesCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	q := NewQueries(reg, slog.New(slog.DiscardHandler))
	partial := fresh("a", 100)
	partial.Partial = true
	warming := rules.KeyReading{Key: keyOf("b"), Quality: rules.Warming}
	stale := fresh("a", 100)
	stale.Quality = rules.Stale
	for _, keys := range [][]rules.KeyReading{
		{fresh("a", 100), fresh("b", 0)}, // 0 W is a reading
		{fresh("a", 100), missing("b")},
		{fresh("a", 100), warming},
		{partial},
		{},
		{missing("a"), warming},
		{stale},
		{stale, fresh("b", 1)},
		{fresh("a", 100), twice("b")},
	} {
		q.Evaluated("node_power", 1, keys, nil)
	}
	q.Evaluated("node_power", 1, nil, errors.New("store: closed"))
	q.Evaluated("rack_power", 1, []rules.KeyReading{fresh("r", 1)}, nil)
	q.Evaluated("my_own", 1, []rules.KeyReading{fresh("a", 1)}, nil)
	want := `
# HELP joulie_twin_input_queries_total Queries of the inputs node_power and facility by what they read.
# TYPE joulie_twin_input_queries_total counter
joulie_twin_input_queries_total{input="facility_rack_power",result="success"} 1
joulie_twin_input_queries_total{input="node_power",result="error"} 2
joulie_twin_input_queries_total{input="node_power",result="no_data"} 3
joulie_twin_input_queries_total{input="node_power",result="partial"} 4
joulie_twin_input_queries_total{input="node_power",result="success"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "joulie_twin_input_queries_total"); err != nil {
		t.Error(err)
	}
}

// S0-172, S0-173: a hint of each kind once, and none for what a start brings.
func TestHintsOnce(t *testing.T) {
	var out bytes.Buffer
	q := NewQueries(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&out, nil)))
	said := func(ts int64, reading string, keys []rules.KeyReading, err error, want string) {
		t.Helper()
		out.Reset()
		q.Evaluated(reading, ts, keys, err)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("at %d %s: %q; want %q", ts, reading, got, want)
		}
	}
	half := []rules.KeyReading{fresh("a", 1), missing("b")}
	said(0, "node_power", nil, nil, "")
	said(59_000, "node_power", nil, nil, "")
	said(59_500, "node_power", half, nil, "")
	said(60_000, "node_power", nil, nil, "") // it had answered meanwhile
	said(120_000, "node_power", nil, nil, `input=node_power result=no_data why="" do="nothing answers: see that producers`)
	said(121_000, "node_power", nil, nil, "")
	said(300_000, "rack_power", nil, nil, "")
	said(400_000, "rack_power", nil, nil, "") // the same kind
	said(400_000, "node_power", half, nil, "")
	said(460_000, "node_power", half, nil, `why="no answer" do="not every node answers: have k8s.node.name promoted`)
	said(530_000, "node_power", half, nil, "")
	said(530_001, "node_power", nil, errors.New("store: closed"), "")
	said(530_002, "node_power", []rules.KeyReading{twice("b")}, nil, "give every producer its own service.instance.id")
	said(530_003, "node_power", nil, errors.New("many-to-many matching not allowed"), "")
}

// S0-172, S0-173: an answer without the node's label is no reading, and the hint is
// of that label; one without another label is told by the engine.
func TestHintOfAnswersWithoutNode(t *testing.T) {
	var out bytes.Buffer
	q := NewQueries(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&out, nil)))
	nobody := func(label string) []rules.KeyReading {
		return []rules.KeyReading{{Quality: rules.Missing, Nameless: label}}
	}
	f := func(ts int64, input string, keys []rules.KeyReading, want string) {
		t.Helper()
		out.Reset()
		q.Evaluated(input, ts, keys, nil)
		q.Evaluated(input, ts+60_000, keys, nil)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q; want %q", input, got, want)
		}
	}
	f(0, "node_power", append(nobody("exported_instance"), fresh("a", 1)), "")
	f(100_000, "node_power", nobody("k8s_node_name"), `result=no_data why="an answer has no label k8s_node_name" do="not every node answers: have k8s.node.name promoted`)
}

// S0-176: what is not fresh is absent, and 0 is a value.
func TestFacilityGauges(t *testing.T) {
	row := func(name string, key labels.Labels, v float64, valid bool, q rules.Quality) *engine.ReadingReport {
		return &engine.ReadingReport{Name: name, KeyReading: rules.KeyReading{Key: key, Value: v, Valid: valid, Quality: q}}
	}
	rep := &engine.Report{Readings: []*engine.ReadingReport{
		row("node_power", keyOf("a"), 350, true, rules.Fresh),
		row("facility_ambient_temperature", labels.EmptyLabels(), 0, true, rules.Fresh),
		row("facility_it_power", labels.EmptyLabels(), 5000, true, rules.Stale),
		row("facility_cooling_power", labels.EmptyLabels(), 0, false, rules.Missing),
		row("cooling_zone_temperature", labels.FromStrings("joulie_cooling_zone_name", "z1"), 21.5, true, rules.Fresh),
		row("rack_power", labels.FromStrings("joulie_rack_name", "r1"), 900, true, rules.Fresh),
		row("rack_power", labels.FromStrings("joulie_rack_name", "r2"), 0, false, rules.Warming),
		row("node_inlet_temperature", keyOf("a"), 25, true, rules.Fresh),
		{Name: "rack_power", Keyless: true},
	}}
	want := `
# HELP joulie_twin_facility_ambient_temperature_celsius Outdoor temperature of the facility.
# TYPE joulie_twin_facility_ambient_temperature_celsius gauge
joulie_twin_facility_ambient_temperature_celsius 0
# HELP joulie_twin_facility_cooling_zone_temperature_celsius Temperature of a cooling zone.
# TYPE joulie_twin_facility_cooling_zone_temperature_celsius gauge
joulie_twin_facility_cooling_zone_temperature_celsius{cooling_zone="z1"} 21.5
# HELP joulie_twin_facility_node_inlet_temperature_celsius Temperature of the air at a node's inlet.
# TYPE joulie_twin_facility_node_inlet_temperature_celsius gauge
joulie_twin_facility_node_inlet_temperature_celsius{node="a"} 25
# HELP joulie_twin_facility_rack_power_watts Power that a rack draws.
# TYPE joulie_twin_facility_rack_power_watts gauge
joulie_twin_facility_rack_power_watts{rack="r1"} 900
`
	if err := testutil.CollectAndCompare(NewFacility(func() *engine.Report { return rep }), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The names of the inputs are what users write into alerts.
func TestInputNames(t *testing.T) {
	var got []string
	for _, in := range Inputs() {
		got = append(got, in.Name+"|"+in.Title)
	}
	want := "[node_power|node_power facility_ambient_temperature|facility ambient_temperature facility_it_power|facility it_power" +
		" facility_cooling_power|facility cooling_power facility_cooling_zone_temperature|facility cooling_zone_temperature" +
		" facility_rack_power|facility rack_power facility_node_inlet_temperature|facility node_inlet_temperature]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v; want %s", got, want)
	}
}
