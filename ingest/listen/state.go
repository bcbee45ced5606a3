package listen

import (
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/ingest"
)

// State is a channel as it is now.
type State struct {
	Name    string
	Class   ingest.Class
	Listen  []Address
	Live    bool            // it accepts
	Started time.Time       // of the activation; zero on a node channel
	Since   time.Time       // from when the actor's work is its own
	Who     ingest.Identity // zero on a node channel, and while none is live
	Err     error           // why it does not accept, or why the last activation failed
}

func (c *channel) state() State {
	c.addrMu.Lock()
	defer c.addrMu.Unlock()
	s := State{Name: c.c.Name(), Class: c.c.Class(), Listen: slices.Clone(c.spec.Listen), Err: c.err}
	if d := c.door; d != nil {
		s.Live, s.Started, s.Since, s.Who, s.Err = true, d.act.Started(), c.since, d.act.Identity(), d.trouble()
	}
	return s
}

// States are all channels, by name.
func (m *Manager) States() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]State, 0, len(m.channels))
	for _, ch := range m.channels {
		out = append(out, ch.state())
	}
	slices.SortFunc(out, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Prove makes a question for the addresses of a live channel, see Ask.
func (m *Manager) Prove(name string) (Proof, error) {
	ch, err := m.existing(name)
	if err != nil {
		return Proof{}, err
	}
	d := ch.live()
	switch why := ch.state().Err; {
	case d != nil:
	case why != nil:
		return Proof{}, refuse(ErrConflict, "%w; nothing listens", why)
	default:
		return Proof{}, refuse(ErrConflict, "channel %s: has no activation; nothing listens", name)
	}
	return d.proof(), nil
}
