package ingest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
)

// sendJSON sends a gauge whose point has the given fields beside its time.
func sendJSON(b *bed, fields string) (Result, error) {
	return b.r.ExportJSON(context.Background(), []byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{`+fields+`}]}}]}]}]}`))
}

// C07, C09, C10: each way to write a number, and what is none.
func TestJSONNumbers(t *testing.T) {
	const at = `"timeUnixNano":"1760000000000000000",`
	bad := math.Pi // no value below
	for _, c := range []struct {
		fields string
		want   float64
	}{
		{at + `"asInt":250`, 250}, {at + `"asInt":"250"`, 250}, {at + `"asInt":"-250"`, -250}, {at + `"asInt":2.5e2`, 250}, {at + `"asInt":"250.0"`, 250},
		{at + `"asInt":9223372036854775807`, math.MaxInt64}, {at + `"asInt":-9223372036854775808`, math.MinInt64}, {at + `"asInt":-0`, 0}, {at + `"asInt":1200e-2`, 12}, {at + `"asInt":0e99`, bad},
		{at + `"asInt":9223372036854775808`, bad}, {at + `"asInt":-9223372036854775809`, bad}, {at + `"asInt":99999999999999999999`, bad}, {at + `"asInt":1e99`, bad},
		{at + `"asInt":2.5`, bad}, {at + `"asInt":25e-1`, bad}, {at + `"asInt":5e-3`, bad}, {at + `"asInt":""`, bad}, {at + `"asInt":" 250"`, bad}, {at + `"asInt":"+250"`, bad}, {at + `"asInt":"0x10"`, bad},
		{at + `"asInt":007`, bad}, {at + `"asInt":"007"`, bad}, {at + `"asInt":true`, bad}, {at + `"asInt":{"low":250,"high":0}`, bad}, {at + `"asInt":[250]`, bad}, {at + `"asInt":"NaN"`, bad},
		{at + `"asDouble":250.5`, 250.5}, {at + `"asDouble":"250.5"`, 250.5}, {at + `"asDouble":-1E-7`, -1e-7}, {at + `"asDouble":"Infinity"`, math.Inf(1)}, {at + `"asDouble":"-Infinity"`, math.Inf(-1)},
		{at + `"asDouble":"inf"`, bad}, {at + `"asDouble":"nan"`, bad}, {at + `"asDouble":NaN`, bad}, {at + `"asDouble":Infinity`, bad}, {at + `"asDouble":1e999`, bad}, {at + `"asDouble":"0x1p4"`, bad}, {at + `"asDouble":"1_0"`, bad}, {at + `"asDouble":""`, bad},
		{at + `"asDouble":.5`, bad}, {at + `"asDouble":5.`, bad}, {at + `"asDouble":+5`, bad}, {at + `"asDouble":5e`, bad},
		{`"timeUnixNano":1760000000000000000,"asInt":1`, 1}, {`"timeUnixNano":1.76e18,"asInt":1`, 1}, {`"time_unix_nano":"1760000000000000000","as_int":"1"`, 1}, {`"timeUnixNano":-1,"asInt":1`, bad},
		{at + `"asInt":1,"flags":0`, 1}, {at + `"asInt":1,"flags":4294967296`, bad}, {at + `"asInt":1,"flags":-1`, bad}, {at + `"asInt":1,"flags":null,"asDouble":null`, 1},
		{at + `"asInt":1,"asInt":2`, bad}, {at + `"asInt":1,"as_int":2`, bad}, {at + `"asInt":1,"attributes":[null]`, bad}, {at + `"asInt":1,"attributes":{}`, bad},
	} {
		b := newBed(t, nil)
		res, err := sendJSON(b, c.fields)
		if c.want == bad {
			if err == nil {
				t.Errorf("%s: %+v; want an error", c.fields, res)
			} else {
				wantDecodeError(t, err)
			}
			if len(b.stored()) != 0 {
				t.Errorf("%s: something is stored", c.fields)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
		}
		b.check(`{__name__="g"}`, tv{base, c.want})
		b.close()
	}
	// 1760000059999999999 is no float: the time is rounded down to the millisecond.
	b := newBed(t, nil)
	b.at(60)
	if _, err := sendJSON(b, `"timeUnixNano":1760000059999999999,"asDouble":"NaN"`); err != nil {
		t.Fatal(err)
	}
	b.check(`{__name__="g"}`, tv{base + 59_999, quiet(math.NaN())})
}

// The words of JSON itself: what is strict, and what is skipped.
func TestJSONDocuments(t *testing.T) {
	const one = `{"resourceMetrics":[]}`
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		body string
		ok   bool
	}{
		{one, true}, {" \r\n\t" + one + "\n", true}, {`{}`, true}, {`{"resourceMetrics":null}`, true},
		{``, false}, {`[]`, false}, {`null`, false}, {`"x"`, false}, {`{`, false}, {one + one, false}, {one + "x", false}, {one + "\x00", false}, {"\x00" + one, false}, {"\ufeff" + one, false},
		{`{"resourceMetrics":[],}`, false}, {`{,}`, false}, {`{"resourceMetrics"}`, false}, {`{"resourceMetrics":}`, false}, {`{resourceMetrics:[]}`, false}, {`{'resourceMetrics':[]}`, false},
		{`{"resourceMetrics":{}}`, false}, {`{"resourceMetrics":[[]]}`, false}, {`{"resourceMetrics":[{}{}]}`, false}, {`{"resourceMetrics":[{},]}`, false}, {`{"resourceMetrics":[,{}]}`, false},
		{`{"x":[1,{"y":"z","w":[true,false,null,-1.5e+3]},{},[]]}`, true}, {`{"x":[1,]}`, false}, {`{"x":{"a":1,}}`, false}, {`{"x":{1:2}}`, false}, {`{"x":[1}}`, false}, {`{"x":nul}`, false}, {`{"x":tru}`, false}, {`{"x":01}`, false}, {`{"x":"\x01"}`, false},
		{`{"x":` + deep(64) + `}`, true}, {`{"x":` + deep(65) + `}`, false}, {`{"x":` + strings.Repeat("[", 1<<20), false}, {strings.Repeat(`{"x":`, 1<<20), false},
		{`{"x":"\u00e4\ud83d\ude00\"\\\/\b\f\n\r\t"}`, true}, {`{"x":"\ud83d"}`, false}, {`{"x":"\ude00\ud83d"}`, false}, {`{"x":"\ud83dx"}`, false}, {`{"x":"\u12"}`, false}, {`{"x":"\u+123"}`, false}, {`{"x":"\x"}`, false}, {`{"x":"`, false}, {`{"x":"\`, false},
		{"{\"x\":\"\xff\"}", false}, {"{\"x\":\"\xed\xa0\xbd\"}", false},
		{`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":1}]}]}]}`, false}, {`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"isMonotonic":"true"}}]}]}]}`, false},
		{`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA"}}]}]}]}`, true}, {`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":"cumulative"}}]}]}]}`, false},
		{`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":-1}}]}]}]}`, false},
	} {
		_, err := newBedOfNothing().ExportJSON(context.Background(), []byte(c.body))
		switch {
		case c.ok && err != nil:
			t.Errorf("%.80s: %v", c.body, err)
		case !c.ok && err == nil:
			t.Errorf("%.80q is taken", c.body)
		case !c.ok:
			wantDecodeError(t, err)
		}
	}
}

func newBedOfNothing() *Receiver { return NewReceiver(Options{Appendable: nowhere{}}) }

// Each kind of attribute value gives the label that its protobuf form gives.
func TestJSONAttributes(t *testing.T) {
	b := newBed(t, nil)
	_, err := sendJSON(b, `"timeUnixNano":"1760000000000000000","asInt":1,"attributes":[
		{"key":"s","value":{"stringValue":"\u00e4"}},{"key":"i","value":{"intValue":"-3"}},{"key":"j","value":{"int_value":4}},
		{"key":"b","value":{"boolValue":true}},{"key":"c","value":{"boolValue":false}},{"key":"d","value":{"doubleValue":1e21}},
		{"key":"y","value":{"bytesValue":"AQ-_"}},{"key":"z","value":{"bytesValue":"AQ+/Aw=="}},
		{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"x"}]}}},{"key":"m","value":{"kvlistValue":{"values":[{"key":"x","value":{}}]}}},
		{"key":"e","value":{}},{"key":"n","value":null},{"key":"o"}]`)
	if err != nil {
		t.Fatal(err)
	}
	b.check(`{__name__="g", b="true", c="false", d="1e+21", i="-3", j="4", s="ä", y="AQ+/", z="AQ+/Aw=="}`, tv{base, 1})
	for _, value := range []string{`{"bytesValue":"A"}`, `{"bytesValue":"!!!!"}`, `{"bytesValue":1}`, `{"intValue":1.5}`, `{"stringValue":1}`} {
		_, err := sendJSON(b, `"attributes":[{"key":"k","value":`+value+`}]`)
		wantDecodeError(t, err)
	}
}

// An error names the place.
func TestJSONErrors(t *testing.T) {
	const body = `{"resourceMetrics":[{"scopeMetrics":[{"scope":{"name":5}}]}]}`
	_, err := newBedOfNothing().ExportJSON(context.Background(), []byte(body))
	want := fmt.Sprintf("otlp: json: byte %d: want a string", strings.Index(body, "5"))
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}
