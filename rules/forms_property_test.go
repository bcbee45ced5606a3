package rules

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Property: what a store that promotes the node says by labels, one that promotes
// nothing says by target_info, at every instant: keys, values, quality, marks.
// Components come and go, with and without a marker, and counters reset. Each
// sample comes with its target_info here: where that is older, a component that
// ended may be absent by target_info while it is still stale by label.
func TestPropertyFormsAgree(t *testing.T) {
	cases := 0
	byLabel, byInfo := forms(t, AttributesLabels), forms(t, AttributesTargetInfo)
	auto := forms(t, AttributesAuto, local(quiet))
	rapid.Check(t, func(rt *rapid.T) {
		promoted, bare := newWorld(t), newWorld(t)
		defer promoted.db.Close()
		defer bare.db.Close()
		mixed := newEval(bare)
		for _, w := range []*world{promoted, bare, mixed} {
			w.eval.Interval = nil // a window wider than the lookback outlives target_info
		}
		type source struct {
			node, id, rest string
			counter        bool
			power, sum     float64
			alive          bool
		}
		var all []*source
		for i := range rapid.IntRange(1, 4).Draw(rt, "sources") {
			s := &source{node: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "node"), counter: rapid.Bool().Draw(rt, "counter"), alive: true}
			s.id = rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "id")
			s.power = float64(rapid.IntRange(1, 9).Draw(rt, "power")) * 10
			name := "hw_power_watts"
			if s.counter {
				name = "hw_energy_joules_total"
			}
			s.rest = fmt.Sprintf(`job="j",instance="%s-%d",hw_type="cpu",hw_id="%s"`, s.node, i, s.id)
			s.id = fmt.Sprintf("%s-%d", s.node, i)
			s.rest = name + "{" + s.rest
			all = append(all, s)
		}
		step := float64(rapid.SampledFrom([]int{5, 10, 30}).Draw(rt, "step"))
		for now := 0.0; now < 30*step; now += step {
			for _, s := range all {
				switch was := s.alive; rapid.IntRange(0, 30).Draw(rt, "fate") {
				case 0:
					s.alive = false
				case 1:
					if s.alive = false; was {
						promoted.end(s.rest+`,k8s_node_name="`+s.node+`"}`, now)
						bare.end(s.rest+"}", now)
						continue
					}
				case 2, 3:
					s.alive = true
				case 4:
					s.sum = now / 1000 // a reset, never twice to one value
				}
				if !s.alive {
					continue
				}
				v := s.power
				if s.counter {
					s.sum += s.power * step
					v = s.sum
				}
				promoted.add(s.rest+`,k8s_node_name="`+s.node+`"}`, now, v)
				bare.add(s.rest+"}", now, v)
				bare.add(`target_info{job="j",instance="`+s.id+`",k8s_node_name="`+s.node+`"}`, now, 1)
			}
			if rapid.IntRange(0, 3).Draw(rt, "look") > 0 {
				continue
			}
			cases++
			want := promoted.read(byLabel.Reading("node_power"), now)
			if got := bare.read(byInfo.Reading("node_power"), now); got != want {
				rt.Fatalf("at %g by target_info:\n%s\nby labels:\n%s", now, got, want)
			}
			if got := mixed.read(auto.Reading("node_power"), now); got != want {
				rt.Fatalf("at %g by auto:\n%s\nby labels:\n%s", now, got, want)
			}
		}
	})
	t.Logf("%d instants", cases)
}

// newEval is another evaluator over the same store.
func newEval(w *world) *world {
	other := &world{t: w.t, db: w.db}
	other.restart()
	return other
}
