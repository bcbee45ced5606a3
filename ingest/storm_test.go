package ingest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A storm is two nodes with a receiver and three workload channels each, actors
// that come, go, move and begin anew, and a ledger that knows what each of them
// counted, what became of each request, and who was where. Whatever happens, what
// is stored is what was counted, but for what the receivers said was not (S2-89).
type storm struct {
	t     rapid.TB
	outer *testing.T
	pick  func(n int) int // from 0 to n-1
	now   int64           // ms
	nodes [2]*stormNode

	actors  []*stormActor
	stored  map[string]*amounts // by series, as it should be
	places  map[string]bool     // series and time of each delivery
	truth   amounts             // of all that was collected
	lost    amounts             // of all that is reported
	dropped int                 // delta requests that never arrived
	sent    int
	root    string
	folders int
}

// amounts are what one request holds of a counter and a histogram.
type amounts struct{ count, low, mid, high int64 }

func (a *amounts) add(b amounts, sign int64) {
	a.count += sign * b.count
	a.low += sign * b.low
	a.mid += sign * b.mid
	a.high += sign * b.high
}

func (a amounts) all() int64 { return a.count + a.low + a.mid + a.high }

type stormNode struct {
	*bed
	name     string
	dir      string
	channels []*stormChannel
	want     Windows // by the ledger
	before   Windows // of earlier processes
}

type stormChannel struct {
	name  string
	node  *stormNode
	ch    *Channel
	actor *stormActor
	id    Identity
	at    int64
	since int64
	act   *Activation
}

// stormActor is an actor and its SDK.
type stormActor struct {
	uid, template string
	delta         bool
	at            *stormChannel // nil while suspended
	last          *stormNode    // where it ran last
	since         int64         // of its stay there

	start   int64   // of the process, ms
	total   amounts // since then, as the process sees it
	begin   int64   // of the window to come
	shown   amounts // at the last collection
	counted amounts // of total, somewhere
	unsent  []*stormRequest
	missing bool // the window before was dropped

	known map[*stormNode]*stormStream
}

// stormStream is what the ledger expects a node to know of an actor's streams.
type stormStream struct {
	ends []int64 // of the windows counted there
	end  int64   // of the last value
}

// stormRequest is one export.
type stormRequest struct {
	start, end int64
	value      amounts // since the one before
	total      amounts // since the process began
	counted    bool    // somewhere
}

// newStorm makes the world in folders of its own. What it finds wrong it says to t.
func newStorm(outer *testing.T, t rapid.TB, pick func(int) int, actors int) *storm {
	s := &storm{t: t, outer: outer, pick: pick, now: base, stored: map[string]*amounts{}, places: map[string]bool{}, root: outer.TempDir()}
	for i := range s.nodes {
		n := &stormNode{bed: newBed(outer, nil), name: fmt.Sprintf("node-%d", i), dir: s.folder()}
		for c := range 3 {
			n.channels = append(n.channels, &stormChannel{name: fmt.Sprintf("ch%d", c), node: n})
		}
		s.nodes[i] = n
		s.open(n)
	}
	for i := range actors {
		a := &stormActor{uid: fmt.Sprintf("uid-%d", i), template: fmt.Sprintf("tpl-%d", i%2), delta: i%4 < 2,
			known: map[*stormNode]*stormStream{}}
		// Restored from a golden snapshot, in which something was counted.
		a.start, a.begin = base-1000_000, base-1000
		if i%3 > 0 {
			a.total = amounts{count: 1000, low: 100, mid: 10, high: 1}
		}
		a.shown, a.counted = a.total, a.total
		s.actors = append(s.actors, a)
	}
	return s
}

func (s *storm) folder() string {
	s.folders++
	return filepath.Join(s.root, fmt.Sprint(s.folders))
}

// end closes all there is.
func (s *storm) end() {
	for _, n := range s.nodes {
		if err := n.r.Close(); err != nil {
			s.t.Error(err)
		}
		n.close()
	}
	if err := os.RemoveAll(s.root); err != nil {
		s.t.Error(err)
	}
}

// open starts a node's receiver and makes its activations again.
func (s *storm) open(n *stormNode) {
	r, err := Open(Options{Appendable: n.db, Queryable: n.db, Clock: func() time.Time { return time.UnixMilli(s.now) },
		StateDir: n.dir, OutOfOrder: time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	n.r = r
	for _, c := range n.channels {
		if c.ch, err = r.AddChannel(ChannelOptions{Name: c.name, Class: Workload}); err != nil {
			s.t.Fatal(err)
		}
		if c.actor != nil {
			s.activate(c)
		}
	}
}

func (s *storm) activate(c *stormChannel) {
	var err error
	if c.act, err = c.ch.Activate(c.id, time.UnixMilli(c.at), time.UnixMilli(c.since)); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends a node's receiver as a kill -9 would, and starts the next.
func (s *storm) kill(n *stormNode) {
	for _, c := range n.channels {
		n.before = n.before.plus(c.ch.Windows())
	}
	dir := s.folder()
	if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
		s.t.Fatal(err)
	}
	if err := n.r.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		s.t.Fatal(err)
	}
	n.dir = dir
	s.open(n)
}

func (w Windows) plus(o Windows) Windows {
	return Windows{w.Lost + o.Lost, w.Late + o.Late, w.Repeated + o.Repeated, w.Baseline + o.Baseline, w.BeforeActivation + o.BeforeActivation}
}

// step is one thing that happens.
func (s *storm) step() {
	s.now += int64(1 + s.pick(20))
	a := s.actors[s.pick(len(s.actors))]
	switch what := s.pick(20); {
	case a.at == nil:
		s.resume(a, s.nodes[s.pick(2)])
	case what < 8:
		s.work(a)
		s.export(a, what == 0, what == 1)
	case what < 11:
		s.work(a)
	case what < 14:
		s.retry(a)
	case what < 17:
		s.suspend(a)
	case what < 18:
		s.begin(a)
	case what < 19:
		s.kill(s.nodes[s.pick(2)])
	default:
		s.now += int64(s.pick(5000))
	}
}

func (s *storm) resume(a *stormActor, n *stormNode) {
	i := slices.IndexFunc(n.channels, func(c *stormChannel) bool { return c.actor == nil })
	if i < 0 {
		return
	}
	c := n.channels[i]
	if a.last != n {
		a.since = s.now
	}
	a.at, a.last = c, n
	c.actor, c.at, c.since = a, s.now, a.since
	c.id = Identity{ActorUID: a.uid, TemplateName: a.template, TemplateNamespace: "ns", Container: "main", PodName: n.name + "-" + c.name,
		PodUID: "pod-" + n.name + c.name, Node: n.name, Atespace: "space"}
	s.activate(c)
}

// suspend flushes first where the newest window was dropped: what lies at the seam
// of two nodes neither of them can see.
func (s *storm) suspend(a *stormActor) {
	if a.missing {
		s.work(a)
		s.export(a, false, false)
	}
	a.at.act.End()
	a.at.actor, a.at.act = nil, nil
	a.at = nil
}

func (s *storm) work(a *stormActor) {
	a.total.add(amounts{count: int64(s.pick(10)), low: int64(s.pick(3)), mid: int64(s.pick(3)), high: int64(s.pick(3))}, 1)
}

// begin is a new process of the actor, after a flush: what a process takes with it
// when it dies nobody can count.
func (s *storm) begin(a *stormActor) {
	s.work(a)
	s.export(a, false, false)
	s.now++
	a.start, a.begin = s.now, s.now
	a.total, a.shown, a.counted = amounts{}, amounts{}, amounts{}
	a.unsent = nil
}

// export collects and sends; the request or its answer may be lost on the way.
func (s *storm) export(a *stormActor, drop, silent bool) {
	s.now++
	q := &stormRequest{start: a.begin, end: s.now, total: a.total, value: a.total}
	q.value.add(a.shown, -1)
	s.truth.add(q.value, 1)
	a.shown, a.begin = a.total, s.now
	known := a.known[a.at.node]
	first := known == nil || len(known.ends) == 0
	if drop && a.delta && !first {
		s.lost.add(q.value, 1)
		s.dropped++
		a.missing = true
		return
	}
	if drop && !a.delta {
		return
	}
	if silent && !first && len(a.unsent) < 3 && s.pick(2) == 0 { // it comes later, if it comes
		if a.delta {
			s.lost.add(q.value, 1)
			a.missing = true
		}
		a.unsent = append(a.unsent, q)
		return
	}
	s.deliver(a, q)
	if silent {
		a.unsent = append(a.unsent, q)
		if len(a.unsent) > 3 {
			a.unsent = a.unsent[1:]
		}
	}
}

// retry sends again what was not answered, the oldest or the newest first.
func (s *storm) retry(a *stormActor) {
	if len(a.unsent) == 0 {
		return
	}
	i := s.pick(len(a.unsent))
	q := a.unsent[i]
	s.deliver(a, q)
	if s.pick(2) == 0 {
		a.unsent = slices.Delete(a.unsent, i, i+1)
	}
}

// S2-89, S2-72 to S2-80, S2-87: the audit over a storm of activations, suspends,
// moves, retries and restarts of the receivers.
func TestAuditStorm(t *testing.T) {
	steps := 20_000
	if testing.Short() {
		steps = 4_000
	}
	dice := rand.New(rand.NewPCG(89, 89))
	s := newStorm(t, t, dice.IntN, 12)
	for range steps {
		s.step()
	}
	s.finish()
	var all Windows
	for _, n := range s.nodes {
		all = all.plus(n.want)
	}
	t.Logf("%d requests, %d more that never arrived; counted %+v, reported as lost %+v; windows %+v", s.sent, s.dropped, s.truth, s.lost, all)
	if all.Lost == 0 || all.Late == 0 || all.Repeated == 0 || all.Baseline == 0 || all.BeforeActivation == 0 {
		t.Errorf("the storm did not come to all there is: %+v", all)
	}
	s.end()
}

// Random storms, small ones: stored is truth less what is reported. A case is a
// request.
func TestStormProperty(t *testing.T) {
	cases, least := 0, 10_000
	if testing.Short() {
		least = 1_000
	}
	check := func(rt *rapid.T) {
		s := newStorm(t, rt, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }, 4)
		for range rapid.IntRange(50, 200).Draw(rt, "steps") {
			s.step()
		}
		s.finish()
		s.end()
		cases += s.sent
	}
	for cases < least && !t.Failed() {
		rapid.Check(t, check)
	}
	t.Logf("%d cases", cases)
}
