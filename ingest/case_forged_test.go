package ingest_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/ingest"
)

// C16, S2-1, S2-28, S2-40: an identity in a payload reaches nothing. The case
// was written before decisions.md X26, which adds the label "channel".
func TestForgedIdentityC16(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	ch, err := r.recv.AddChannel(ingest.ChannelOptions{Name: "ch7", Class: ingest.Workload})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(ingest.Identity{ActorUID: "u", Node: "edge-a", ServiceName: "chan-7"}, time.Unix(t0, 0), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.ExportJSON(t.Context(), caseFile(t, "C16-otlp-forged-identity-levels/req1.json"))
	if err != nil || got.Rejected != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	r.check(`app_jobs_total{channel="ch7",instance="edge-a/ch7",job="chan-7",k8s_node_name="edge-a",queue="q1"}`, 60, 7)
	r.check(`count({__name__=~".+",__name__!="target_info"})`, 60, 1)
	for s := range r.query(`{__name__=~".+"}`, 60) {
		if strings.Contains(s, "victim") {
			t.Errorf("the store has %s", s)
		}
	}
	exemplars, err := r.db.ExemplarsJSON(t.Context(), `{__name__=~".+"}`, 0, math.MaxInt64)
	if err != nil || bytes.Contains(exemplars, []byte("victim")) {
		t.Errorf("exemplars %s, %v", exemplars, err)
	}
}
