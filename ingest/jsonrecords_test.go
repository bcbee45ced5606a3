package ingest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"
)

// Traces and logs in JSON are read as pdata reads them: what it writes, and what
// the OpenTelemetry project shows as examples.
func TestJSONRecords(t *testing.T) {
	read := func(t testing.TB, l *levels, body, want []byte) {
		t.Helper()
		wire, err := wireOfJSON(l.json, body, free)
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if got := canonical(t, l, wire); !bytes.Equal(got, want) {
			t.Errorf("%s is read as\n%q; want\n%q", body, got, want)
		}
	}
	traces := func(t testing.TB, body []byte) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body)
		if err != nil {
			t.Fatal(err)
		}
		if td.SpanCount() == 0 {
			t.Fatal("no spans")
		}
		read(t, &traceLevels, body, wireOfTraces(t, td))
	}
	logs := func(t testing.TB, body []byte) {
		ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body)
		if err != nil {
			t.Fatal(err)
		}
		if ld.LogRecordCount() == 0 {
			t.Fatal("no log records")
		}
		read(t, &logLevels, body, wireOfLogs(t, ld))
	}
	traces(t, []byte(`{"resourceSpans":[{"schemaUrl":"r","scopeSpans":[{"schemaUrl":"s","scope":{"name":"n","droppedAttributesCount":4},"spans":[{
		"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b174","parentSpanId":"EEE19B7EC3C1B173","traceState":"a=b","flags":257,
		"name":"op","kind":3,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,"droppedAttributesCount":1,
		"droppedEventsCount":2,"droppedLinksCount":3,"attributes":[{"key":"k","value":{"arrayValue":{"values":[{"intValue":"7"}]}}}],
		"events":[{"timeUnixNano":"1","name":"e","droppedAttributesCount":9,"attributes":[{"key":"b","value":{"bytesValue":"AQI="}}]}],
		"links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","traceState":"c=d","flags":1}],
		"status":{"message":"m","code":2}}]}]}]}`))
	logs(t, []byte(`{"resourceLogs":[{"resource":{"droppedAttributesCount":3},"scopeLogs":[{"logRecords":[{"timeUnixNano":"1","observedTimeUnixNano":2,
		"severityNumber":9,"severityText":"INFO","body":{"kvlistValue":{"values":[{"key":"a","value":{"doubleValue":"NaN"}}]}},
		"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","flags":1,"eventName":"ev","droppedAttributesCount":1,"unknown":[{}]}]}]}]}`))
	dir := filepath.Join(corpus(t), "otlp", "open-telemetry-opentelemetry-proto")
	for name, check := range map[string]func(testing.TB, []byte){"trace.json": traces, "logs.json": logs, "events.json": logs} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		check(t, body)
	}
	checkCases(t, 10_000, func(rt *rapid.T) {
		d := drawn{rt}
		if td, n := d.traces(); n > 0 {
			body, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
			if err != nil {
				t.Fatal(err)
			}
			read(t, &traceLevels, body, wireOfTraces(t, td))
		}
		if ld, n := d.logs(); n > 0 {
			body, err := (&plog.JSONMarshaler{}).MarshalLogs(ld)
			if err != nil {
				t.Fatal(err)
			}
			read(t, &logLevels, body, wireOfLogs(t, ld))
		}
	})
}

// Names of enums, the snake_case of the .proto files, and references to
// entities are read; what is no id, enum or number is an error that says where.
func TestJSONRecordForms(t *testing.T) {
	span := func(fields string) []byte {
		return []byte(`{"resource_spans":[{"resource":{"entity_refs":[{"type":"host","id_keys":["host.id","x"],"schema_url":"u"}]},"scope_spans":[{"spans":[{` + fields + `}]}]}]}`)
	}
	wire, err := wireOfJSON(jsonTraceRequest, span(`"kind":"SPAN_KIND_CONSUMER","status":{"code":"STATUS_CODE_ERROR"},"parent_span_id":"","trace_id":null`), free)
	if err != nil {
		t.Fatal(err)
	}
	s := tracesOf(t, wire).ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	if s.Kind() != ptrace.SpanKindConsumer || s.Status().Code() != ptrace.StatusCodeError {
		t.Errorf("kind %v, status %v", s.Kind(), s.Status().Code())
	}
	if !bytes.Contains(wire, []byte("host.id")) {
		t.Error("the keys of an entity are not read")
	}
	wire, err = wireOfJSON(jsonLogsRequest, []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"SEVERITY_NUMBER_FATAL4"}]}]}]}`), free)
	if err != nil || logsOf(t, wire).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).SeverityNumber() != 24 {
		t.Errorf("%q, %v", wire, err)
	}
	for fields, want := range map[string]string{
		`"spanId":"xyz"`:                               "not in hexadecimal",
		`"spanId":"abc"`:                               "not in hexadecimal",
		`"traceId":"W47/95gDgQPSabYzgT/GDA=="`:         "not in hexadecimal",
		`"spanId":7`:                                   "want a string",
		`"kind":"SPAN_KIND_NONE"`:                      "no kind of a span",
		`"kind":-1`:                                    "out of range",
		`"status":{"code":"OK"}`:                       "no status code",
		`"flags":4294967296`:                           "out of range",
		`"events":{}`:                                  "want an array",
		`"spanId":"aa","span_id":"bb"`:                 "comes twice",
		`"links":[{"attributes":[{"value":{"x":[`:      "byte ",
		`"startTimeUnixNano":{"low":1,"high":2}`:       "want a number",
		`"endTimeUnixNano":"1544712661000000000.5"`:    "no integer of 64 bits",
		`"attributes":[{"key":1}]`:                     "want a string",
		`"name":"` + strings.Repeat("x", 5) + "\x01\"": "a control character",
	} {
		_, err := wireOfJSON(jsonTraceRequest, span(fields), free)
		wantDecodeError(t, err)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", fields, err, want)
		}
	}
}

// JSON goes onward as protobuf, and is stamped.
func TestJSONOnward(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{"scopeSpans": []any{map[string]any{"spans": []any{
		map[string]any{"name": "op", "attributes": []any{map[string]any{"key": "k8s.node.name", "value": map[string]any{"stringValue": "victim"}}}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := a.exportRecords(t.Context(), &traceLevels, true, body)
	if err != nil || res.Accepted != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	checkTrusted(t, "JSON", up.got[0])
}

// free holds as much as is asked for.
func free(int) error { return nil }
