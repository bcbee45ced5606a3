package listen

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattloop/wattloop/ingest"
)

// channel is one definition. Activations come and go one at a time.
type channel struct {
	c       *ingest.Channel
	fixed   bool // the configuration's, as long as the process runs
	busy    sync.Mutex
	addrMu  sync.Mutex // guards what follows, which may be read while busy
	spec    Spec       // Listen has the port that was picked, once bound
	defined Spec       // as it was written
	door    *door
	since   time.Time
	opened  bool  // it has had a door
	err     error // why the last activation failed
}

// Define adds a channel that stays as long as the process runs. It opens nothing.
func (m *Manager) Define(s Spec) error {
	_, err := m.define(s, true)
	return err
}

func (m *Manager) define(s Spec, fixed bool) (*channel, error) {
	if err := s.Check(); err != nil {
		return nil, refuse(ErrInvalid, "channel %s: %w", s.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, errClosed
	case len(m.channels) >= m.o.Channels:
		return nil, refuse(ErrConflict, "channel %s: there are %d channels already, and each keeps its counts: use one of them again", s.Name, len(m.channels))
	}
	if err := m.clash(&s); err != nil {
		return nil, err
	}
	c, err := m.o.Receiver.AddChannel(s.options())
	if err != nil {
		return nil, refuse(ErrInvalid, "%w", err)
	}
	ch := &channel{c: c, fixed: fixed, spec: s, defined: s}
	m.channels[s.Name] = ch
	return ch, nil
}

// clash refuses the address of another channel. The caller holds mu.
func (m *Manager) clash(s *Spec) error {
	for name, other := range m.channels {
		for _, a := range s.Listen {
			if name != s.Name && !a.picks() && slices.Contains(other.listen(), a) {
				return refuse(ErrConflict, "channel %s: %s is the address of channel %s", s.Name, a, name)
			}
		}
	}
	return nil
}

var errClosed = errors.New("channels: the process is ending")

func (c *channel) listen() []Address {
	c.addrMu.Lock()
	defer c.addrMu.Unlock()
	return c.spec.Listen
}

func (c *channel) live() *door {
	c.addrMu.Lock()
	defer c.addrMu.Unlock()
	return c.door
}

// named is the channel of that name, made by def when there is none.
func (m *Manager) named(name string, def *Spec) (*channel, error) {
	m.mu.Lock()
	ch := m.channels[name]
	m.mu.Unlock()
	switch {
	case ch == nil && def == nil:
		return nil, refuse(ErrUnknown, "channel %s: there is none of that name: give it a listen address", name)
	case ch == nil:
		s := *def
		s.Name = name
		return m.define(s, false)
	}
	return ch, nil
}

// takes refuses a definition that is not the channel's own. A channel that came
// at run time and was never open may be given other addresses: the first were
// wrong. The caller holds busy.
func (m *Manager) takes(c *channel, def Spec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	def.Name = c.c.Name()
	moved := c.spec
	moved.Listen, moved.Mode, moved.Group = def.Listen, def.Mode, def.Group
	switch {
	case def.same(&c.defined) || def.same(&c.spec):
		return nil
	case c.fixed || c.opened || !def.same(&moved):
		return refuse(ErrConflict, "channel %s: is defined otherwise, and its address, class and limits are the same over all activations: listen %s, class %s", def.Name, text(c.listen()), c.c.Class())
	}
	if err := moved.Check(); err != nil {
		return refuse(ErrInvalid, "channel %s: %w", def.Name, err)
	}
	if err := m.clash(&moved); err != nil {
		return err
	}
	c.addrMu.Lock()
	defer c.addrMu.Unlock()
	c.spec, c.defined = moved, moved
	return nil
}

func text(as []Address) string {
	var s []string
	for _, a := range as {
		s = append(s, a.String())
	}
	return strings.Join(s, " and ")
}
