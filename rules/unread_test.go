package rules

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// A package that is there and cannot be read never had a sample: the node's power
// lacks it from the first evaluation on, and says so. Another producer's meter of
// the same package stands for it.
func TestUnreadMeterMakesPartial(t *testing.T) {
	series := func(s string) labels.Labels {
		ms, err := dialect.ParseMetricSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		b := labels.NewBuilder(labels.EmptyLabels())
		for _, m := range ms {
			b.Set(m.Name, m.Value)
		}
		return b.Labels()
	}
	w, r := nodeWorld(t, 600, -1, 600)
	host := reading(t, RateCovered, `max by (k8s_node_name) (hw_host_power_watts)`, "k8s_node_name")
	w.gauge(`hw_host_power_watts{k8s_node_name="a"}`, 500, 0, 600, 5)
	for _, c := range []struct{ unread, want string }{
		{cpu1, `{k8s_node_name="a"} 350.00 fresh partial`},
		{strings.Replace(cpu1, `"a"`, `"b"`, 1), `{k8s_node_name="a"} 350.00 fresh`},
		{strings.Replace(cpu1, `hw_type="cpu"`, `hw_type="memory"`, 1), `{k8s_node_name="a"} 350.00 fresh`},
		{cpu0, `{k8s_node_name="a"} 350.00 fresh`}, // somebody else reads it
	} {
		w.eval.Unread = func() []labels.Labels { return []labels.Labels{series(c.unread)} }
		w.want(r, 600, c.want)
		w.want(host, 600, `{k8s_node_name="a"} 500.00 fresh`)
	}
	w.eval.Unread = func() []labels.Labels { return []labels.Labels{series(cpu1)} }
	if k := w.one(r, 600); !strings.Contains(k.Why, `hw_id="cpu1"`) || !strings.Contains(k.Why, "cannot be read") {
		t.Errorf("why %q; want the meter named", k.Why)
	}
	// A key that is evaluated alone carries the mark too.
	if k, ok, err := w.eval.ReadingOf(bg, r, labels.FromStrings("k8s_node_name", "a"), at(600)); !ok || err != nil || !k.Partial {
		t.Errorf("alone: %+v, %v, %v; want partial", k, ok, err)
	}
	w.eval.Unread = func() []labels.Labels { return []labels.Labels{series(`hw_host_power_watts{k8s_node_name="a"}`)} }
	w.want(host, 600, `{k8s_node_name="a"} 500.00 fresh`) // another producer's host meter
}
