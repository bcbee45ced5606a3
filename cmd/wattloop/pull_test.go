package main

import (
	"os"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/ingest/pull"
	"github.com/wattloop/wattloop/rules"
)

// S0-5, S0-43, S0-60, S0-67, S0-79, S0-126: each source and scope loads every shipped rule, reads
// what it names, and asks its endpoints once where both readers want the same. Power
// of a node and of the facility never comes from the agent's reading.
func TestPullSources(t *testing.T) {
	const agent, controller = "TELEMETRY_CPU_HTTP_ENDPOINT", "NODE_POWER_HTTP_ENDPOINT"
	f := func(vars map[string]string, power, cpu string, pulls int) {
		t.Helper()
		c, err := loaded(t, "node: worker-01", "", func(n string) (string, bool) { v, ok := vars[n]; return v, ok })
		if err != nil {
			t.Fatalf("%v: %v", vars, err)
		}
		set, msgs, err := c.loadRules()
		if err != nil {
			t.Fatalf("%v: %v", vars, err)
		}
		for _, m := range msgs {
			if m.Severity == rules.SeverityWarning {
				t.Errorf("%v: %s", vars, m.Text)
			}
		}
		if p, q := set.Reading("node_power").Variant, set.Reading("cpu_power").Variant; p != power || q != cpu {
			t.Errorf("%v: variants %s and %s; want %s and %s", vars, p, q, power, cpu)
		}
		for _, r := range set.Readings {
			for _, selector := range set.Selectors(r.Name) {
				for _, m := range selector {
					if m.Name == "role" && (m.Value == "agent") != (r.Name == "cpu_power") {
						t.Errorf("%v: %s reads what is the %s's", vars, r.Name, m.Value)
					}
				}
			}
		}
		if got := c.pulls(); len(got) != pulls {
			t.Errorf("%v: %d endpoints, want %d: %+v", vars, len(got), pulls, got)
		}
	}
	const here, there = "http://sim/otlp/telemetry/{node}", "http://other/{node}"
	f(nil, "otel", "otel", 0)
	f(map[string]string{agent: here, controller: here}, "otel", "otel", 0)
	f(map[string]string{"TELEMETRY_CPU_SOURCE": "http", agent: here}, "otel", "http", 1)
	f(map[string]string{"TELEMETRY_CPU_SOURCE": "none", "NODE_POWER_SOURCE": "none"}, "none", "otel", 0)
	f(map[string]string{"NODE_POWER_SOURCE": "none", "NODE_POWER_SCOPE": "host"}, "none-host", "otel", 0)
	f(map[string]string{"NODE_POWER_SOURCE": "http", controller: here}, "http", "otel", 1)
	both := map[string]string{"TELEMETRY_CPU_SOURCE": "http", "NODE_POWER_SOURCE": "http", "NODE_POWER_SCOPE": "host", agent: here, controller: here}
	f(both, "http-host", "http", 1)
	both["NODE_POWER_PRESET"] = "kepler"
	f(both, "http-host", "http", 1)
	both[controller] = there
	f(both, "http-host", "http", 2)

	c, err := loaded(t, "node: a\nrate_window: 90s\npull: {nodes: [a, b], controller: 'http://x/{node}', agent: 'http://x/{node}'}\npresets: {node_power: {source: http}, cpu_power: {source: http}}", "", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	got := c.pulls()
	if len(got) != 2 || len(got[0].Wants) != 2 || got[0].Wants[0] != (pull.Want{Role: pull.Agent, Window: pull.AgentWindow}) || got[1].Wants[0] != (pull.Want{Role: pull.Controller, Window: c.RateWindow}) {
		t.Errorf("%+v", got)
	}
}

func TestPullErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := loaded(t, text, "", noEnv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	f("presets: {node_power: {source: http}}", "is http, and there is no endpoint; set pull.controller, or NODE_POWER_HTTP_ENDPOINT")
	f("presets: {cpu_power: {source: http}}", "set pull.agent, or TELEMETRY_CPU_HTTP_ENDPOINT")
	f("pull: {nodes: [a, b], controller: 'http://x/t'}", "there is no {node} in it")
	f("pull: {nodes: [a, ..]}", `".." is no name of a node`)
	f("pull: {interval: 1ms}", "at least 100ms")
	f("pull: {agent: 'x'}", "is no endpoint")
}

// The example of docs/pull.md is a configuration.
func TestPullPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/pull.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	c, err := loaded(t, text, "", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.pulls(); len(got) != 2 || len(got[0].Wants) != 2 {
		t.Errorf("%+v", got)
	}
	for _, s := range c.settings() {
		if strings.HasPrefix(s.key, "pull.") && s.key != "pull.timeout" && !strings.Contains(string(page), strings.TrimPrefix(s.key, "pull.")+":") {
			t.Errorf("docs/pull.md has no %s", s.key)
		}
	}
}

// S0-1, S0-23, S0-25, S0-43: a wattloop reads the power of a node from another one,
// and shows none of it once that has ended. In between the other also gives what
// the legacy JSON holds.
func TestPullFromAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("two processes")
	}
	source := startNode(t, "version: 1\n", "--node=worker-01")
	fed := source.feed(t, 210)
	defer fed.stop()
	reader := startNode(t, "version: 1\n", "--node=worker-01", "--presets.node-power.source=http", "--pull.interval=100ms",
		"--pull.controller=http://"+source.web+"/otlp/telemetry/{node}")
	const query = `wattloop_input_power_watts{role="controller",scope="components"}`
	reader.await(t, "reading of 210 W", func() bool { v, err := reader.value(query); return err == nil && v == 210 })
	reader.await(t, "gauge of the document", func() bool { v, err := reader.value("hw_power_watts"); return err == nil && v == 210 })
	legacy := startNode(t, "version: 1\n", "--node=worker-01", "--presets.node-power.source=http", "--pull.interval=100ms",
		"--pull.controller=http://"+source.web+"/telemetry/{node}?format=legacy")
	const producers = `wattloop_input_power_watts{role="controller",scope="producer-defined"}`
	legacy.await(t, "reading of the legacy JSON", func() bool { v, err := legacy.value(producers); return err == nil && v == 210 })
	legacy.stop(t)
	fed.stop()
	source.stop(t)
	reader.await(t, "end of the reading", func() bool { _, err := reader.value(query); return err != nil })
	reader.stop(t)
	for who, want := range map[*testNode]int{source: 1, legacy: 1, reader: 0} {
		if got := strings.Count(who.said.String(), "deprecated"); got != want {
			t.Errorf("%d warnings of the legacy JSON, want %d:\n%s", got, want, who.said.String())
		}
	}
}
