package ingest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// echoed is how many bytes of a payload that is all Z an answer repeats, at most
// in one place and in all.
func echoed(answer string) (most, all int) {
	for _, run := range strings.FieldsFunc(answer, func(c rune) bool { return c != 'Z' }) {
		most, all = max(most, len(run)), all+len(run)
	}
	return most, all
}

// No answer repeats more than 64 bytes of what was sent in one place, nor 200 in
// all, whatever is wrong with it and wherever.
func TestEcho(t *testing.T) {
	long := strings.Repeat("Z", 3000)
	up := &upstream{}
	b := newBed(t, func(o *Options) { o.Onward = up })
	ch, err := b.r.AddChannel(ChannelOptions{Name: "few", Nodes: []string{"edge-a"}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, res Result, err error) {
		t.Helper()
		answer := res.Message
		if err != nil {
			answer = err.Error()
		}
		if most, all := echoed(answer); most > 64 || all > 200 {
			t.Errorf("%s: %d bytes in one place, %d in all, of what was sent: %s", what, most, all, answer)
		}
	}
	refused := 0
	for i, attrs := range [][]string{{"k8s.node.name", long}, {"service.name", long}, {long, long}, {"a", long}, {"k8s.node.name", "edge-a" + long[:900]}} {
		for j, key := range []string{long, "a", "job", "k8s.node.name"} {
			p := newPayload(attrs...)
			for n := range 5 {
				p.gauge(long[n:], "", []int64{0, 999_000_000, -999_000_000, 0, 0}[n], 1, key, long)
			}
			p.gauge("wattloop_"+long, long, 0, 1)
			p.gauge("x", long, 0, 1, "k\n"+long, "v\n"+long)
			p.sum(long, "", delta, 0, 1, -1)
			p.histogram(long, 0, []float64{2, 1}, 1, 1, 1)
			res, err := ch.Export(t.Context(), wireOf(t, p.md))
			if err == nil && res.Rejected == 0 {
				t.Error("nothing was refused")
			}
			refused++
			check(fmt.Sprintf("metrics %d %d", i, j), res, err)
			td := someTraces(2, attrs...)
			td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetName(long + "\xff")
			res, err = ch.Live().ExportTraces(t.Context(), wireOfTraces(t, td))
			check(fmt.Sprintf("traces %d", i), res, err)
		}
	}
	// Every string, number and key of a good document, in turn, made a long one.
	good := `{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":{"intValue":"1","boolValue":true,"doubleValue":"1","bytesValue":"AQ=="}}]},"scopeSpans":[{"spans":[{"traceId":"aa","kind":"SPAN_KIND_SERVER","flags":1,"startTimeUnixNano":"1","status":{"code":1}}]}]}]}`
	for i := 0; i < len(good); i++ {
		for _, put := range []string{long, `"` + long, `{"` + long + `":`, "Z\x01" + long, `\u` + long} {
			body := []byte(good[:i] + put + good[i:])
			res, err := ch.Live().exportRecords(t.Context(), &traceLevels, true, body)
			check(fmt.Sprintf("JSON %d", i), res, err)
			body = bytes.ReplaceAll(body, []byte("pans"), []byte("etrics"))
			res, err = ch.ExportJSON(t.Context(), body)
			check(fmt.Sprintf("JSON metrics %d", i), res, err)
		}
	}
	up.err = fmt.Errorf("an upstream's own words")
	_, err = ch.Live().ExportTraces(t.Context(), wireOfTraces(t, someTraces(1, "a", long)))
	check("no upstream", Result{}, err)
}
