package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// points is how many points a request has.
const stormPoints = 2

// deliver sends a request and writes down what must become of it.
func (s *storm) deliver(a *stormActor, q *stormRequest) {
	s.sent++
	c := a.at
	k := a.known[c.node]
	if k == nil {
		k = &stormStream{}
		a.known[c.node] = k
	}
	w := &c.node.want
	series := fmt.Sprintf("%s/%s/%s", c.node.name, c.name, a.template)
	s.places[fmt.Sprintf("%s@%d", series, q.end)] = true
	if a.delta {
		s.deltaAt(series, a, k, w, c, q)
	} else {
		s.totalAt(series, a, k, w, c, q)
	}
	p := newPayload("service.name", "app", "ate.actor.uid", "forged")
	s.fill(p, a, q)
	if _, err := c.act.Export(context.Background(), wireOf(s.outer, p.md)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) deltaAt(series string, a *stormActor, k *stormStream, w *Windows, c *stormChannel, q *stormRequest) {
	newest := int64(0)
	if len(k.ends) > 0 {
		newest = slices.Max(k.ends)
	}
	known := slices.Sorted(slices.Values(k.ends))
	known = known[max(0, len(known)-8):] // what the receiver remembers
	switch {
	case slices.Contains(known, q.end):
		w.Repeated += stormPoints
		return
	case q.end <= c.since:
		w.BeforeActivation += stormPoints
		return
	case q.end > newest:
		if newest > 0 && q.start > max(newest, c.since) {
			w.Lost += stormPoints
		}
		a.missing = false
	case len(k.ends) > 8 && q.end < slices.Min(known):
		return // rejected: too far behind to tell
	default:
		w.Late += stormPoints
	}
	k.ends = append(k.ends, q.end)
	if len(a.unsent) > 0 && slices.Contains(a.unsent, q) && !q.counted {
		s.lost.add(q.value, -1) // it came after all
	}
	q.counted = true
	s.add(series, q.value)
}

func (s *storm) totalAt(series string, a *stormActor, k *stormStream, w *Windows, c *stormChannel, q *stormRequest) {
	switch {
	case q.end == k.end:
		w.Repeated += stormPoints
		return
	case q.end < k.end:
		w.Late += stormPoints
		return
	}
	by := q.total
	by.add(a.counted, -1)
	first := k.end < c.since
	if first && a.start < c.since {
		w.Baseline += stormPoints
		if by.all() > 0 { // else it is older than what was counted elsewhere
			s.lost.add(by, 1)
			a.counted = q.total
		}
		by = amounts{}
	} else {
		a.counted = q.total
	}
	k.end = q.end
	k.ends = append(k.ends, q.end)
	s.add(series, by)
}

func (s *storm) add(series string, by amounts) {
	if s.stored[series] == nil {
		s.stored[series] = &amounts{}
	}
	s.stored[series].add(by, 1)
}

func (s *storm) fill(p *payload, a *stormActor, q *stormRequest) {
	temporality, start, v := cumulative, a.start, q.total
	if a.delta {
		temporality, start, v = delta, q.start, q.value
	}
	dp := p.sum("app.requests", "{request}", temporality, start-base, q.end-base, float64(v.count))
	put(dp.Attributes(), []string{"channel", "forged", "k8s.pod.name", "forged"})
	h := p.metric("app.duration", "s").SetEmptyHistogram()
	h.SetAggregationTemporality(temporality)
	hp := h.DataPoints().AppendEmpty()
	hp.SetStartTimestamp(pcommon.Timestamp(start * 1e6))
	hp.SetTimestamp(pcommon.Timestamp(q.end * 1e6))
	hp.ExplicitBounds().FromRaw([]float64{1, 2})
	hp.BucketCounts().FromRaw([]uint64{uint64(v.low), uint64(v.mid), uint64(v.high)})
	hp.SetCount(uint64(v.low + v.mid + v.high))
	hp.SetSum(float64(v.low + 2*v.mid + 3*v.high))
}

// finish lets every actor export once more, on each series, so that what was
// folded shows, and compares all there is.
func (s *storm) finish() {
	for _, a := range s.actors {
		if a.at != nil {
			s.suspend(a)
		}
	}
	for _, a := range s.actors {
		s.now++
		s.resume(a, s.nodes[s.pick(2)])
		s.work(a)
		s.export(a, false, false)
		s.suspend(a)
	}
	s.closeSeries()
	s.compare()
}

// closeSeries adds nothing to each series, later than all else.
func (s *storm) closeSeries() {
	for _, n := range s.nodes {
		for _, c := range n.channels {
			for template := range 2 {
				s.now += 10
				closer := &stormActor{uid: "closer-" + c.name + fmt.Sprint(template), template: fmt.Sprintf("tpl-%d", template), delta: true, begin: s.now, known: map[*stormNode]*stormStream{}}
				c.actor, c.at, c.since = closer, s.now, s.now
				c.id = Identity{ActorUID: closer.uid, TemplateName: closer.template, TemplateNamespace: "ns", Container: "main", PodName: n.name + "-" + c.name,
					PodUID: "pod-" + n.name + c.name, Node: n.name, Atespace: "space"}
				s.activate(c)
				closer.at = c
				s.export(closer, false, false)
				s.suspend(closer)
			}
		}
	}
}

// compare reads both stores.
func (s *storm) compare() {
	t := s.t
	t.Helper()
	sum := amounts{}
	for _, n := range s.nodes {
		var got Windows
		for _, c := range n.channels {
			got = got.plus(c.ch.Windows())
		}
		if got = got.plus(n.before); got != n.want {
			t.Errorf("%s: windows %+v; the ledger has %+v", n.name, got, n.want)
		}
		newest, count, weight := map[string]amounts{}, map[string]int64{}, map[string]int64{}
		for text, samples := range n.stored() {
			ls := parsedLabels(text)
			name := ls[metricLabel]
			if name == "target_info" {
				continue
			}
			series := fmt.Sprintf("%s/%s/%s", n.name, ls["channel"], ls["ate_actor_template_name"])
			s.identity(n, ls)
			last := 0.0
			for _, sm := range samples {
				if !s.places[fmt.Sprintf("%s@%d", series, sm.t)] {
					t.Errorf("%s has a sample at %d that nobody sent there", text, sm.t)
				}
				if sm.v < last {
					t.Errorf("%s goes back from %g to %g", text, last, sm.v)
				}
				last = sm.v
			}
			a, v := newest[series], int64(last)
			switch name + ls["le"] {
			case "app_requests_total":
				a.count = v
			case "app_duration_seconds_bucket1":
				a.low += v
				a.mid -= v
			case "app_duration_seconds_bucket2":
				a.mid += v
				a.high -= v
			case "app_duration_seconds_bucket+Inf":
				a.high += v
			case "app_duration_seconds_count":
				count[series] += v
			case "app_duration_seconds_sum":
				weight[series] += v
			}
			newest[series] = a
		}
		for series, a := range newest {
			sum.add(a, 1)
			if count[series] != a.low+a.mid+a.high || weight[series] != a.low+2*a.mid+3*a.high {
				t.Errorf("%s: count %d, sum %d; the buckets %+v", series, count[series], weight[series], a)
			}
			if want := s.stored[series]; want == nil || *want != a {
				t.Errorf("%s holds %+v; the ledger has %+v", series, a, want)
			}
		}
	}
	want := s.truth
	want.add(s.lost, -1)
	if sum != want {
		t.Errorf("stored %+v; counted %+v less reported lost %+v is %+v", sum, s.truth, s.lost, want)
	}
}

// identity compares a series with the record of the activations.
func (s *storm) identity(n *stormNode, ls map[string]string) {
	c := ls["channel"]
	want := map[string]string{"ate_actor_template_namespace": "ns", "ate_container_name": "main", "ate_actor_atespace": "space",
		"k8s_pod_name": n.name + "-" + c, "k8s_node_name": n.name, "instance": "pod-" + n.name + c, "job": "app"}
	for name, value := range want {
		if ls[name] != value {
			s.t.Errorf("%v: %s is %q; want %q", ls, name, ls[name], value)
		}
	}
	for name := range ls {
		if _, ok := want[name]; !ok && name != "le" && name != "channel" && name != metricLabel && name != "ate_actor_template_name" {
			s.t.Errorf("%v: label %s", ls, name)
		}
	}
}

func parsedLabels(text string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Split(strings.Trim(text, "{}"), ", ") {
		name, value, _ := strings.Cut(pair, "=")
		out[name] = strings.Trim(value, `"`)
	}
	return out
}
