package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/wattloop/wattloop/ingest"
)

const nodeAttribute = "k8s.node.name"

// Document is what one GET has answered.
type Document struct {
	// Legacy says that it is the deprecated form, which has nothing but Watts: 0
	// where it has no positive value.
	Legacy bool
	Watts  float64
	// Metrics are those of resources that name the node, or none, which then name
	// it too.
	Metrics pmetric.Metrics
}

// Parse reads the answer of an endpoint for a node. A body with the key
// resourceMetrics at its top is OTLP's JSON, any other the legacy JSON. An error
// shows none of the body beyond a name.
func Parse(body []byte, node string) (Document, error) {
	if !utf8.Valid(body) {
		return Document{}, errors.New("the answer is not valid UTF-8")
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return Document{}, fmt.Errorf("the answer is no JSON object: %w", placed(err))
	}
	if top == nil {
		return Document{}, errors.New("the answer is null, want a JSON object")
	}
	if _, ok := top["resourceMetrics"]; !ok {
		w, err := legacyWatts(top)
		return Document{Legacy: true, Watts: w, Metrics: pmetric.NewMetrics()}, err
	}
	wire, err := ingest.WireFromJSON(body)
	if err != nil {
		return Document{}, err
	}
	req := pmetricotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		return Document{}, fmt.Errorf("otlp: %w", err)
	}
	md := req.Metrics()
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		attrs := rm.Resource().Attributes()
		v, ok := attrs.Get(nodeAttribute)
		if !ok {
			attrs.PutStr(nodeAttribute, node)
			return false
		}
		return v.Type() != pcommon.ValueTypeStr || v.Str() != node
	})
	return Document{Metrics: md}, nil
}

// placed is the error of encoding/json with the byte that it is about.
func placed(err error) error {
	var s *json.SyntaxError
	if errors.As(err, &s) {
		return fmt.Errorf("byte %d: %w", s.Offset, err)
	}
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Errorf("byte %d: it is a JSON %s", t.Offset, t.Value)
	}
	return err
}

// legacyWatts is the first positive of packagePowerWatts and cpu.packagePowerWatts.
// What else a producer may put there is not looked at.
func legacyWatts(top map[string]json.RawMessage) (float64, error) {
	w, err := number(top["packagePowerWatts"], "packagePowerWatts")
	if w > 0 || err != nil {
		return w, err
	}
	var cpu map[string]json.RawMessage
	if raw, ok := top["cpu"]; ok && json.Unmarshal(raw, &cpu) != nil {
		return 0, errors.New("legacy JSON: cpu is no object")
	}
	w, err = number(cpu["packagePowerWatts"], "cpu.packagePowerWatts")
	return max(w, 0), err
}

// number reads one value, 0 where there is none.
func number(raw json.RawMessage, name string) (float64, error) {
	if raw == nil {
		return 0, nil
	}
	var v *float64
	if json.Unmarshal(raw, &v) != nil {
		return 0, fmt.Errorf("legacy JSON: %s is not a number that fits a double", name)
	}
	if v == nil {
		return 0, nil
	}
	return *v, nil
}

// finite is a value that can be watts or joules.
func finite(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
