package ingest

import (
	"strings"
	"testing"
)

// S2-23, S2-24, S2-43, S2-50: what the series of a workload are called by: the
// service's name is kept, or defaulted where there is none, its namespace goes,
// and the container's name is the actor's word where the channel has none.
func TestNamesOfMetrics(t *testing.T) {
	few := Identity{ActorUID: "u", TemplateName: "cart"}
	f := func(id Identity, payload []string, want string) {
		t.Helper()
		b, a, up := workload(t, id, nil)
		p := newPayload(payload...)
		p.gauge("g", "", 0, 1)
		if res, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Accepted != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		b.check(want, tv{base, 1})
		of := metricsOf(t, up.got[0].Wire).ResourceMetrics().At(0).Resource().Attributes()
		name, _ := of.Get("service.name")
		if job := parsedLabels(want)["job"]; job != name.Str() && !strings.HasSuffix(job, "/"+name.Str()) {
			t.Errorf("%v: the series has job %s, what goes onward %s", payload, job, name.Str())
		}
	}
	const rest = `channel="ch7", instance="ch7", job=`
	f(few, nil, `{__name__="g", ate_actor_template_name="cart", `+rest+`"cart"}`)
	for _, unknown := range []string{"", "unknown_service", "unknown_service:node", "unknown_service:/usr/bin/python3"} {
		f(few, []string{"service.name", unknown}, `{__name__="g", ate_actor_template_name="cart", `+rest+`"cart"}`)
	}
	f(few, []string{"service.name", "mine", "service.namespace", "forged"}, `{__name__="g", ate_actor_template_name="cart", `+rest+`"mine"}`)
	f(few, []string{"service.name", "mine", "container.name", "side"}, `{__name__="g", ate_actor_template_name="cart", channel="ch7", container_name="side", instance="ch7", job="mine"}`)
	f(Identity{ActorUID: "u"}, nil, `{__name__="g", `+rest+`"ch7"}`)
	f(actor, []string{"service.name", "mine", "container.name", "side"}, `{__name__="g", ate_actor_atespace="tenant", ate_actor_template_name="cart", ate_actor_template_namespace="shop", `+
		`ate_container_name="main", channel="ch7", instance="pod-uid", job="shop-ns/cart-svc", k8s_node_name="edge-a", k8s_pod_name="worker-0"}`)
}

// X14: the prefix of what a channel sets is an option; ate and ate.dev stay
// reserved beside it (S2-30, S2-31).
func TestAttributePrefix(t *testing.T) {
	b, a, up := workload(t, actor, func(o *Options) { o.AttributePrefix = "acme.run" })
	p := newPayload("acme.run.actor.uid", "victim", "ate.actor.uid", "victim", "ate.dev/actor_uid", "victim", "acme_run_x", "victim")
	p.gauge("g", "", 0, 1, "acme.run/actor_name", "victim", "ate.actor.name", "victim", "acme.runner", "honest")
	if res, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Accepted != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := a.ExportTraces(t.Context(), wireOfTraces(t, someTraces(1, "acme.run.actor.uid", "victim", "ate.actor.uid", "victim"))); err != nil {
		t.Fatal(err)
	}
	b.check(`{__name__="g", acme_run_actor_atespace="tenant", acme_run_actor_template_name="cart", acme_run_actor_template_namespace="shop", acme_run_container_name="main", `+
		`acme_runner="honest", channel="ch7", instance="pod-uid", job="shop-ns/cart-svc", k8s_node_name="edge-a", k8s_pod_name="worker-0"}`, tv{base, 1})
	for _, f := range up.got {
		if strings.Contains(string(f.Wire), "victim") || strings.Contains(string(f.Wire), "ate.actor") {
			t.Errorf("%s: %q goes onward", f.Signal, f.Wire)
		}
	}
	of := tracesOf(t, up.got[1].Wire).ResourceSpans().At(0).Resource().Attributes().AsRaw()
	if of["acme.run.actor.uid"] != "uid-1" || of["acme.run.telemetry.plane"] != "actor" {
		t.Errorf("the trace says %v", of)
	}
}
