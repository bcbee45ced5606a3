package ingest

import (
	"fmt"
	"testing"
	"time"
)

// S2-5, S2-7, S2-49, S2-53, S2-87: 10,000 actors through 10 channels of one template make no
// series after the first round, neither here nor at an upstream, whatever each
// says of itself; their traces name each of them, and the worker that it is on.
func TestActorsBounded(t *testing.T) {
	actors := 10_000
	if testing.Short() {
		actors = 1_000
	}
	b, first, up := workload(t, actor, nil)
	first.End()
	b.at(30)
	var channels []*Channel
	for i := range 10 {
		ch, err := b.r.AddChannel(ChannelOptions{Name: fmt.Sprintf("c%d", i), Class: Workload})
		if err != nil {
			t.Fatal(err)
		}
		channels = append(channels, ch)
	}
	series, resources := -1, map[string]int{}
	for n := range actors {
		id := Identity{ActorUID: fmt.Sprintf("uid-%d", n%(actors/2)), ActorName: fmt.Sprintf("name-%d", n), Atespace: "tenant", TemplateNamespace: "shop",
			TemplateName: "cart", Container: "main", PodName: fmt.Sprintf("worker-%d", n%10), PodUID: fmt.Sprintf("pod-%d", n%10), Node: "edge-a"}
		at := time.UnixMilli(base + int64(n))
		a, err := channels[n%10].Activate(id, at, at)
		if err != nil {
			t.Fatal(err)
		}
		p := newPayload("service.name", "unknown_service:app", "service.instance.id", id.ActorUID, "process.pid", fmt.Sprint(n), "my.id", id.ActorName)
		p.sum("app.jobs", "", delta, int64(n), int64(n)+500, 1, "queue", "q1", "ate.actor.uid", id.ActorUID)
		p.gauge("app.depth", "", int64(n)+500, 1, "host.name", id.ActorName)
		if res, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Rejected > 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := a.ExportTraces(t.Context(), wireOfTraces(t, someTraces(1, "my.id", id.ActorName))); err != nil {
			t.Fatal(err)
		}
		a.End()
		wire := metricsOf(t, up.got[0].Wire)
		resources[fmt.Sprint(wire.ResourceMetrics().At(0).Resource().Attributes().AsRaw())]++
		of := tracesOf(t, up.got[1].Wire).ResourceSpans().At(0).Resource().Attributes().AsRaw()
		if of["ate.actor.uid"] != id.ActorUID || of["ate.actor.name"] != id.ActorName || of["k8s.pod.name"] != id.PodName || of["service.name"] != "cart" {
			t.Fatalf("the trace of %+v says %v", id, of)
		}
		up.got = nil
		if n == 9 {
			series = b.seriesCount()
		}
	}
	if got := b.seriesCount(); got != series || series != 30 { // two metrics and target_info, for each channel
		t.Errorf("%d series after the first round, %d after all; want 30", series, got)
	}
	if len(resources) != 10 {
		t.Errorf("%d resources of metrics went onward; want 10", len(resources))
	}
}

func (b *bed) seriesCount() int { return int(b.db.Head().NumSeries()) }
