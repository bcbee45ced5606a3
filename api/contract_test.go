package api

import (
	"context"
	"errors"
	"testing"
)

// S0-23, S0-26 to S0-29: the two routes and their formats.
func TestTelemetry(t *testing.T) {
	f := func(target string, code int, want string) {
		t.Helper()
		w := ask(Handler(options()), "GET", target, nil)
		if code == 200 {
			if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s; want %s", target, w.Code, w.Body, want)
			}
			return
		}
		if w.Code != code {
			t.Errorf("%s: %d; want %d", target, w.Code, code)
		}
		word := map[int]string{404: "not_found", 400: "bad_data"}[code]
		isError(t, target, w, word, want)
	}
	const doc, legacy = `{"resourceMetrics":[]}`, `{"packagePowerWatts":350}`
	f("/otlp/telemetry/w1", 200, doc)
	f("/telemetry/w1", 200, doc)
	f("/telemetry/w1?format=otlp", 200, doc)
	f("/telemetry/w1?format=legacy", 200, legacy)
	f("/telemetry/w1?format=", 400, `format "": want otlp or legacy`)
	f("/telemetry/w1?format=xml", 400, `format "xml": want otlp or legacy`)
	f("/telemetry/w1?format=legcy", 400, "did you mean legacy?")
	f("/telemetry/w1?format=LEGACY", 400, `want otlp or legacy`)
	f("/otlp/telemetry/w2", 404, "node w2: no series of its hardware is stored")
	f("/telemetry/w2?format=legacy", 404, "node w2: ")
	f("/telemetry/..%2fw1", 400, "the name of a node is")
	f("/otlp/telemetry/", 400, "the name of a node is")

	o := options()
	o.Telemetry.Legacy = func(context.Context, string) ([]byte, bool, error) {
		return nil, false, &CodedError{400, errors.New("turned off by legacy_json")}
	}
	isError(t, "off", ask(Handler(o), "GET", "/telemetry/w1?format=legacy", nil), "bad_data", "turned off by legacy_json")
}
