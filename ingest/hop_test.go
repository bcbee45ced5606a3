package ingest

import (
	"strings"
	"testing"
)

// decisions.md X26 over a hop: what a wattloop passes on of an actor is no node's
// word at the next one. Its series carry the name of the channel that it came by,
// which every selector of a rule leaves out, and the identity that was stamped.
func TestActorOverAHop(t *testing.T) {
	_, a, up := workload(t, Identity{ActorUID: "u", TemplateName: "tpl", PodName: "pod", PodUID: "w1", Node: "n1"}, nil)
	p := newPayload("k8s.node.name", "n9")
	p.gauge("hw.power", "W", 0, 990, "hw.type", "cpu", "hw.id", "cpu0", "channel", "x")
	if _, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	if len(up.got) != 1 {
		t.Fatalf("%d requests went onward; want 1", len(up.got))
	}
	next := newBed(t, nil)
	res, err := next.r.Export(t.Context(), up.got[0].Wire)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 1, 0, nil)
	next.check(`{__name__="hw_power_watts", ate_actor_template_name="tpl", channel="default", hw_id="cpu0", hw_type="cpu", instance="w1", job="tpl", k8s_node_name="n1", k8s_pod_name="pod"}`,
		tv{base, 990})
	for s := range next.stored() {
		if !strings.Contains(s, `channel="default"`) {
			t.Errorf("%s looks like a node's own", s)
		}
	}

	// A node's own word is as before.
	own := newPayload("k8s.node.name", "n1", "service.name", "s", "ate.telemetry.plane", "node")
	own.gauge("hw.power", "W", 0, 90, "hw.id", "cpu0")
	checkResult(t, next.export(own.md), 1, 0, nil)
	next.check(`{__name__="hw_power_watts", hw_id="cpu0", job="s", k8s_node_name="n1"}`, tv{base, 90})
}
