package rules

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/presets/names"
)

// push appends a metric of the names table every 5 s, spelled as the strategy has
// it, its labels too. Labels that the table does not have stay.
func (w *world) push(s names.Strategy, metric string, rises bool, watts float64, pairs ...string) {
	w.t.Helper()
	m, ok := names.Lookup(metric)
	if !ok && metric != targetInfo {
		w.t.Fatalf("no metric %s", metric)
	}
	b := labels.NewBuilder(labels.FromStrings(nameLabel, m.Stored(s)))
	if metric == targetInfo {
		b.Set(nameLabel, targetInfo)
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		for _, a := range names.Attributes() {
			if a.Name == name {
				name = a.Stored(s)
			}
		}
		b.Set(name, pairs[i+1])
	}
	app := w.db.Appender(w.t.Context())
	for t := 0.0; t <= 300; t += 5 {
		v := watts
		if rises {
			v = 1000 + watts*t
		}
		if _, err := app.Append(0, b.Labels(), at(t), v); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func under(t testing.TB, s names.Strategy, attributes string, more ...Source) *Set {
	t.Helper()
	return mustLoad(t, Settings{Naming: string(s), Attributes: attributes}, append(shipped(t), more...)...)
}

// S0-144, S0-147: presets, controls and drop-ins find their series under every
// strategy, by labels and by target_info, and keep their words.
func TestEveryNaming(t *testing.T) {
	dropIn := local(`version: 1
readings:
  gpu_temp:
    key: [k8s_node_name, hw_id]
    expr: hw_temperature_celsius{hw_type="gpu"}
  hottest:
    key: [k8s_node_name]
    expr: max by (k8s_node_name) (max_over_time(gpu_temp{hw_id="gpu0"}[1m]))
  share:
    key: [k8s_node_name]
    expr: cpu_power / node_power
  scraped:
    key: [k8s_node_name]
    expr: sum by (k8s_node_name) (max by (k8s_node_name, hw_id) (hw_temperature_celsius) * on (k8s_node_name) group_left () fan_factor)
  renamed:
    key: [node]
    expr: max by (node) (label_replace(hw_power_watts{k8s_node_name="a"}, "node", "$1", "k8s_node_name", "(.*)"))
`)
	for _, s := range strategies {
		for _, promoted := range []bool{true, false} {
			t.Run(string(s), func(t *testing.T) {
				w := newWorld(t)
				who := []string{"job", "j", "instance", "1"}
				if promoted {
					who = append(who, "k8s.node.name", "a")
				}
				w.push(s, targetInfo, false, 1, "job", "j", "instance", "1", "k8s.node.name", "a")
				w.push(s, "hw.energy", true, 100, append(who, "hw.type", "cpu", "hw.id", "cpu0")...)
				w.push(s, "hw.power", false, 250, append(who, "hw.type", "gpu", "hw.id", "gpu0")...)
				w.push(s, "hw.temperature", false, 70, append(who, "hw.type", "gpu", "hw.id", "gpu0")...)
				w.gauge(`fan_factor{k8s_node_name="a"}`, 2, 0, 300, 5) // scraped: no strategy
				set := under(t, s, AttributesAuto, dropIn, local2(quiet))
				node, id := set.Reading("node_power").Key[0], set.Reading("gpu_temp").Key[1]
				if dotted := strings.HasPrefix(string(s), "No"); dotted != (node == "k8s.node.name") || dotted != (id == "hw.id") {
					t.Errorf("keys %s and %s", node, id)
				}
				key := func(pairs ...string) string { return labels.FromStrings(pairs...).String() }
				w.want(set.Reading("node_power"), 300, key(node, "a")+" 350.00 fresh")
				w.want(set.Reading("cpu_packages"), 300, key(node, "a")+" 1.00 fresh")
				w.want(set.Reading("gpu_temp"), 300, key(node, "a", id, "gpu0")+" 70.00 fresh")
				w.want(set.Reading("hottest"), 300, key(node, "a")+" 70.00 fresh")
				w.want(set.Reading("share"), 300, `{k8s_node_name="a"} 0.29 fresh`)
				w.want(set.Reading("scraped"), 300, `{k8s_node_name="a"} 140.00 fresh`)
				w.want(set.Reading("renamed"), 300, `{node="a"} 250.00 fresh`)
				w.wantControl(set.Control("quiet"), 300, `{k8s_node_name="a"} engage 150.00 fresh`)
			})
		}
	}
}

func local2(text string) Source { return Source{"/etc/wattloop/rules.d/70-more.yaml", []byte(text)} }

// A naming that is none is refused by name.
func TestSettingsThatAreNone(t *testing.T) {
	for want, set := range map[string]Settings{
		`settings: error: naming is "NoTranslatin": it is `:                          {Naming: "NoTranslatin"},
		`settings: error: attributes is "both": it is labels or target_info or auto`: {Attributes: "both"},
	} {
		if _, messages := Load(shipped(t), set); len(messages) != 1 || !strings.HasPrefix(messages[0].String(), want) {
			t.Errorf("says\n%s\nwant %s", printed(messages), want)
		}
	}
}
