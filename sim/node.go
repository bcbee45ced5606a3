// Package sim is a machine to practise on: a node of two CPU packages and some
// GPUs whose power follows its load, its frequency and the caps that are written
// to its sysfs tree, and whose meters are sent out as OTLP. It knows no time but
// the one it is given, touches nothing outside its folder, and the same seed
// gives the same node.
package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/wattloop/wattloop/sysfs"
)

const packages = 2

// Config says which node to simulate.
type Config struct {
	Dir  string // its sysfs tree; made when absent, never a real sysfs
	Node string // k8s.node.name; empty: worker-01
	GPUs int    // 0 to 16
	Seed uint64
	// Start is when the script of the load begins: idle, a load from 15 s to
	// 125 s, and this every ten minutes. Before it the node idles.
	Start time.Time
}

// Budget returns a node power budget in watts, CPU packages and GPUs together,
// that a node of that many GPUs keeps while it idles and breaks under load, and
// that it can keep under load by capping the packages alone.
func Budget(gpus int) float64 {
	budget := packages * 110.0
	for i := range gpus {
		budget += gpuModel.demand(gpu(i, 0).load)
	}
	return budget
}

// maxGPUs is what one script serves: with more, the packages' share of the power
// is too small for a budget on them to show.
const maxGPUs = 16

// gpu is GPU i. The load runs on the first of every eight; the others idle.
func gpu(i int, seed uint64) *unit {
	u := newUnit(gpuModel, i, seed)
	if i%8 != 0 {
		u.load = u.idle
	}
	return u
}

// Node is a simulated node. Its methods may be called by many goroutines.
type Node struct {
	config   Config
	tree     tree
	resource *resource.Resource

	mu       sync.Mutex
	begun    time.Time // of the first Tick: the counters count since then
	now      time.Time // of the newest Tick
	packages []*unit
	memories []*unit
	gpus     []*unit
	rest     *unit // fans, disks, losses: in the host's power alone
}

// New makes the node and its tree. A Dir that is a real sysfs is refused.
func New(c Config) (*Node, error) {
	if c.Node == "" {
		c.Node = "worker-01"
	}
	if c.GPUs < 0 || c.GPUs > maxGPUs {
		return nil, fmt.Errorf("sim: %d GPUs: want 0 to %d", c.GPUs, maxGPUs)
	}
	if c.Dir == "" {
		return nil, errors.New("sim: no folder for the tree")
	}
	fs, err := sysfs.NewDry(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	n := &Node{config: c, tree: tree{fs}, resource: describe(c.Node)}
	for i := range packages {
		n.packages = append(n.packages, newUnit(packageModel, i, c.Seed))
		n.memories = append(n.memories, newUnit(memoryModel, i, c.Seed))
	}
	for i := range c.GPUs {
		n.gpus = append(n.gpus, gpu(i, c.Seed))
	}
	n.rest = newUnit(restModel, 0, c.Seed)
	if err := n.tree.lay(n.packages, n.memories); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return n, nil
}

// FS is the node's sysfs tree.
func (n *Node) FS() sysfs.FS { return n.tree.fs }

// Tick lets the node live until to: it takes up the caps that stand in its tree
// now, lets power, heat and energy follow, and writes its energy counters. The
// first Tick says when the node begins, in balance. A time before the last one
// is an error.
func (n *Node) Tick(to time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if to.Before(n.now) {
		return fmt.Errorf("sim: tick to %s is before the last one, %s", to.Format(time.RFC3339Nano), n.now.Format(time.RFC3339Nano))
	}
	for i, p := range n.packages {
		limit, err := n.tree.limit(i, p.cap)
		if err != nil {
			return fmt.Errorf("sim: %w", err)
		}
		p.cap = limit
	}
	if n.begun.IsZero() {
		n.begun, n.now = to, to
		for _, u := range n.units() {
			u.settle(n.at(to))
		}
	}
	n.advance(to)
	if err := n.tree.energy(n.packages, n.memories); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return nil
}

func (n *Node) units() []*unit {
	all := append([]*unit{n.rest}, n.packages...)
	return append(append(all, n.memories...), n.gpus...)
}

// at is a time on the script's clock, in seconds.
func (n *Node) at(t time.Time) float64 { return t.Sub(n.config.Start).Seconds() }

// pace is the longest stretch over which the load counts as constant. Stretches
// end at whole multiples of it on the script's clock, however often Tick comes.
const pace = 100 * time.Millisecond

func (n *Node) advance(to time.Time) {
	for n.now.Before(to) {
		since := n.now.Sub(n.config.Start)
		rest := since % pace
		if rest < 0 {
			rest += pace
		}
		next := n.now.Add(pace - rest)
		if next.After(to) {
			next = to
		}
		middle := n.at(n.now.Add(next.Sub(n.now) / 2))
		for _, u := range n.units() {
			u.advance(middle, next.Sub(n.now).Seconds())
		}
		n.now = next
	}
}

// Power returns what each package and GPU draws in watts, by name: cpu0, gpu0.
func (n *Node) Power() map[string]float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	power := map[string]float64{}
	for _, u := range append(append([]*unit{}, n.packages...), n.gpus...) {
		power[u.id] = u.power
	}
	return power
}

// Backfill lets the node live from from to to and sends its metrics every step
// on the way, the last one at to, each stamped with its own time. It stops at
// the first error of send.
func (n *Node) Backfill(ctx context.Context, from, to time.Time, step time.Duration, send func(context.Context, *metricdata.ResourceMetrics) error) error {
	if step <= 0 {
		return fmt.Errorf("sim: backfill in steps of %s", step)
	}
	for at := from; ; at = at.Add(step) {
		if at.After(to) {
			at = to
		}
		if err := n.Tick(at); err != nil {
			return err
		}
		if err := send(ctx, n.Metrics()); err != nil {
			return fmt.Errorf("sim: backfill at %s: %w", at.Format(time.RFC3339), err)
		}
		if !at.Before(to) {
			return nil
		}
	}
}
