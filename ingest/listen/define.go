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
	if m.channels[s.Name] != nil {
		return nil, refuse(ErrInvalid, "channel %s: %w", s.Name, errTwice)
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

var errTwice = errors.New("there is one of that name")

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

// noChannel refuses a name that nobody has.
func noChannel(name string) error {
	return refuse(ErrUnknown, "channel %s: there is none of that name; wattloop channels list prints those that there are", name)
}

// existing is the channel of that name.
func (m *Manager) existing(name string) (*channel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.channels[name]; ch != nil {
		return ch, nil
	}
	return nil, noChannel(name)
}

// has reports whether the channel was not forgotten.
func (m *Manager) has(ch *channel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.channels[ch.c.Name()] == ch
}

// hold is the channel of that name, busy, made by def when there is none.
func (m *Manager) hold(name string, def *Spec) (*channel, error) {
	for {
		ch, err := m.existing(name)
		switch {
		case err != nil && def == nil:
			return nil, refuse(ErrUnknown, "channel %s: there is none of that name: give it a listen address", name)
		case err != nil:
			s := *def
			s.Name = name
			if ch, err = m.define(s, false); errors.Is(err, errTwice) {
				continue // another made it meanwhile
			}
			if err != nil {
				return nil, err
			}
		}
		ch.busy.Lock()
		if m.has(ch) {
			return ch, nil
		}
		ch.busy.Unlock() // forgotten meanwhile
	}
}

// forget takes out a channel that came at run time and never was open: what it
// was defined as was wrong, and must stand in nobody's way. The caller holds busy.
func (m *Manager) forget(ch *channel) {
	if ch.fixed || ch.opened {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.channels, ch.c.Name())
	ch.c.Remove()
}

// takes refuses a definition that is not the channel's own. The caller holds busy.
func (m *Manager) takes(c *channel, def Spec) error {
	def.Name = c.c.Name()
	if def.same(&c.defined) || def.same(&c.spec) {
		return nil
	}
	return refuse(ErrConflict, "channel %s: is defined otherwise, and its address, class and limits are the same over all activations: listen %s, class %s", def.Name, text(c.listen()), c.c.Class())
}

// noIdentity refuses what only an activation of a workload channel has.
func (c *channel) noIdentity() error {
	return refuse(ErrInvalid, "channel %s: a channel of class node has no identity and no begin: its producers are trusted", c.c.Name())
}

func text(as []Address) string {
	var s []string
	for _, a := range as {
		s = append(s, a.String())
	}
	return strings.Join(s, " and ")
}
