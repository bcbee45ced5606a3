package sim_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/wattloop/wattloop/sim"
)

// receiver is an OTLP receiver that keeps what comes.
type receiver struct {
	got    chan pmetric.Metrics
	refuse int64
}

func (r *receiver) Export(_ context.Context, req pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	r.got <- req.Metrics()
	resp := pmetricotlp.NewExportResponse()
	resp.PartialSuccess().SetRejectedDataPoints(r.refuse)
	return resp, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	in := pmetricotlp.NewExportRequest()
	if err == nil {
		err = in.UnmarshalProto(body)
	}
	if err != nil || req.URL.Path != "/v1/metrics" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	out, err := r.Export(req.Context(), in)
	if err != nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	answer, err := out.MarshalProto()
	if err != nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(answer)
}

func (r *receiver) http(t *testing.T) *sim.Sender {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	s, err := sim.DialHTTP(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What arrives over the SDK's exporter is what the node holds, at the node's
// own time (S0-92 to S0-101, S0-107 to S0-112).
func TestPointsReadBack(t *testing.T) {
	r := &receiver{got: make(chan pmetric.Metrics, 1)}
	sender := r.http(t)
	n := newNode(t, sim.Config{GPUs: 1, Node: "worker-07"})
	tick(t, n, 0)
	tick(t, n, 5.5)
	if err := sender.Send(t.Context(), n.Metrics()); err != nil {
		t.Fatal(err)
	}
	rm := (<-r.got).ResourceMetrics().At(0)
	want := map[string]any{"k8s.node.name": "worker-07", "host.name": "worker-07", "service.name": "wattloop-sim", "service.instance.id": "worker-07/sim"}
	if diff := cmp.Diff(want, rm.Resource().Attributes().AsRaw()); diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
	got := map[string]int{}
	ms := rm.ScopeMetrics().At(0).Metrics()
	for i := range ms.Len() {
		m := ms.At(i)
		points := m.Gauge().DataPoints
		if m.Type() == pmetric.MetricTypeSum {
			points = m.Sum().DataPoints
			if !m.Sum().IsMonotonic() || m.Sum().AggregationTemporality() != pmetric.AggregationTemporalityCumulative {
				t.Errorf("%s is no cumulative counter", m.Name())
			}
		}
		for j := range points().Len() {
			p := points().At(j)
			key := m.Name() + " " + m.Unit()
			if typ, ok := p.Attributes().Get("hw.type"); ok {
				key += " " + typ.Str()
			}
			got[key]++
			if at := p.Timestamp().AsTime(); !at.Equal(start.Add(5500 * time.Millisecond)) {
				t.Errorf("%s is stamped %s", m.Name(), at)
			}
			if m.Name() == "hw.energy" {
				id, _ := p.Attributes().Get("hw.id")
				if held := value(t, n, "hw.energy", id.Str()); p.DoubleValue() != held || !p.StartTimestamp().AsTime().Equal(start) {
					t.Errorf("hw.energy of %s arrives as %g since %s; the node holds %g", id.Str(), p.DoubleValue(), p.StartTimestamp().AsTime(), held)
				}
			}
		}
	}
	wantPoints := map[string]int{
		"hw.energy J cpu": 2, "hw.energy J memory": 2, "hw.energy J gpu": 1,
		"hw.power W cpu": 2, "hw.power W memory": 2, "hw.power W gpu": 1,
		"hw.temperature Cel cpu": 2, "hw.temperature Cel memory": 2, "hw.temperature Cel gpu": 1,
		"hw.cpu.speed Hz cpu": 2,
		"hw.host.energy J":    1, "hw.host.power W": 1, "hw.host.ambient_temperature Cel": 1,
	}
	if diff := cmp.Diff(wantPoints, got); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	r.refuse = 3
	if err := sender.Send(t.Context(), n.Metrics()); err == nil || !strings.Contains(err.Error(), "3") {
		t.Errorf("Send of which 3 points are refused = %v; want an error that says so", err)
	}
	<-r.got
	if err := sender.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
