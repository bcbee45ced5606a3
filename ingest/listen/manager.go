package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/ingest"
)

// What an error of a Manager is, for errors.Is. Any other is one of the machine:
// an address in use, a self-test that failed.
var (
	ErrInvalid  = errors.New("invalid")  // the request makes no sense
	ErrUnknown  = errors.New("unknown")  // there is no channel of that name
	ErrConflict = errors.New("conflict") // it contradicts what is there
)

// refusal is an error of one of the kinds above.
type refusal struct{ kind, err error }

func (r *refusal) Error() string   { return r.err.Error() }
func (r *refusal) Unwrap() []error { return []error{r.kind, r.err} }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Errorf(format, args...)}
}

// Options are what a Manager works with. Receiver, Clock and Log are required.
type Options struct {
	Receiver *ingest.Receiver
	Clock    func() time.Time
	Log      *slog.Logger
	Dial     Dial          // for self-tests; nil is the network
	Patience time.Duration // that one self-test may take; 0 is 2 s
	Grace    time.Duration // for answers at the end of an activation; 0 is 1 s
	Channels int           // at most; 0 is 1000
	// State is a file that remembers over restarts which activations nobody has
	// ended; empty for none.
	State string
}

// Manager holds the channels that were defined and the doors that are open. It is
// safe for concurrent use.
type Manager struct {
	o Options

	mu       sync.Mutex
	channels map[string]*channel
	actors   *actors
	closed   bool

	standing *standing
}

// NewManager returns a Manager without channels.
func NewManager(o Options) *Manager {
	o.Patience = cmp.Or(o.Patience, 2*time.Second)
	o.Grace = cmp.Or(o.Grace, time.Second)
	o.Channels = cmp.Or(o.Channels, 1000)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	m := &Manager{o: o, channels: map[string]*channel{}, actors: newActors(1 << 16)}
	var err error
	if m.standing, err = readStanding(o.State); err != nil {
		o.Log.Warn("which activations were live before is not known: cumulative counters begin anew", "err", err)
	}
	for _, r := range m.standing.live {
		m.actors.saw(r.Identity.ActorUID, r.Since)
	}
	return m
}

// Activation is a request to begin one.
type Activation struct {
	Identity ingest.Identity // none for a node channel
	// At is when it began and Since from when the actor's work is its own; zero is
	// now, and the earliest activation of the actor that is known here.
	At, Since time.Time
}

// Activate opens the door of a channel under an identity. The identity is set,
// then the addresses are bound, then tested, then requests are let in (S2-85). def
// defines the channel if there is none of that name, and may be nil. The same
// activation again changes nothing, and began is false; another one while one is
// live is refused with ErrConflict (S2-15). After an error nothing is open, and a
// channel that came at run time and never was open is forgotten.
func (m *Manager) Activate(ctx context.Context, name string, def *Spec, a Activation) (s State, began bool, err error) {
	ch, err := m.hold(name, def)
	if err != nil {
		return State{}, false, err
	}
	defer ch.busy.Unlock()
	defer func() {
		if err != nil {
			m.forget(ch)
		}
	}()
	if def != nil {
		if err := m.takes(ch, *def); err != nil {
			return State{}, false, err
		}
	}
	if d := ch.live(); d != nil {
		if err := ch.again(d, a); err != nil {
			return State{}, false, err
		}
		return ch.state(), false, nil
	}
	act, since, err := m.begin(ch, a)
	if err != nil {
		return State{}, false, err
	}
	d, err := m.open(ctx, ch, act)
	ch.addrMu.Lock()
	news := err != nil && (ch.err == nil || ch.err.Error() != err.Error())
	ch.door, ch.since, ch.err = d, since, err
	ch.addrMu.Unlock()
	if err == nil && ch.c.Class() == ingest.Workload {
		r := record{act.Identity(), act.Started(), since, !a.Since.IsZero()}
		if old, ok := m.standing.of(name, a.Identity); ok && a.Since.IsZero() {
			r.Stated = old.Stated
		}
		m.remember(name, m.standing.put(name, r))
	}
	if news {
		m.o.Log.Error("channel was not activated", "channel", name, "err", err)
	}
	if err != nil {
		return State{}, false, err
	}
	m.o.Log.Info("channel activated", "channel", name, "listen", text(ch.listen()), "actor_uid", a.Identity.ActorUID)
	return ch.state(), true, nil
}

// again decides on a request for a channel that is live.
func (c *channel) again(d *door, a Activation) error {
	now := d.act
	if c.c.Class() == ingest.Node && a != (Activation{}) {
		return c.noIdentity()
	}
	if now.Identity() != a.Identity {
		return refuse(ErrConflict, "channel %s: is live for another identity since %s; end that activation first", c.c.Name(), now.Started().UTC().Format(time.RFC3339Nano))
	}
	if !a.At.IsZero() && !a.At.Equal(now.Started()) || !a.Since.IsZero() && !a.Since.Equal(c.since) {
		return refuse(ErrConflict, "channel %s: is live for this identity since %s, not from when this request says; end that activation first", c.c.Name(), now.Started().UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// begin sets the identity.
func (m *Manager) begin(ch *channel, a Activation) (*ingest.Activation, time.Time, error) {
	name := ch.c.Name()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, time.Time{}, errClosed
	}
	if ch.c.Class() == ingest.Node {
		if a != (Activation{}) {
			return nil, time.Time{}, ch.noIdentity()
		}
		return ch.c.Live(), time.Time{}, nil
	}
	now := m.o.Clock()
	at, since, activate := cmp.Or(a.At, now), a.Since, ch.c.Activate
	switch was, ok := m.standing.of(name, a.Identity); {
	case !since.IsZero():
	case ok && !was.At.After(now) && (a.At.IsZero() || a.At.Equal(was.At)): // nobody has ended it
		at, since = was.At, was.Since
		if !was.Stated {
			activate = ch.c.Resume
		}
	default:
		// It may have been on another node since it was here.
		since, activate = m.actors.since(a.Identity.ActorUID, at), ch.c.Resume
	}
	const ahead = time.Minute
	switch {
	case at.After(now.Add(ahead)):
		return nil, time.Time{}, refuse(ErrInvalid, "channel %s: at: %s is in the future", name, at.UTC().Format(time.RFC3339Nano))
	case a.Since.After(at):
		return nil, time.Time{}, refuse(ErrInvalid, "channel %s: since: %s is later than the begin of the activation, %s", name, a.Since.UTC().Format(time.RFC3339Nano), at.UTC().Format(time.RFC3339Nano))
	}
	act, err := activate(a.Identity, at, since)
	if err != nil {
		return nil, time.Time{}, refuse(ErrInvalid, "%w", err)
	}
	m.actors.saw(a.Identity.ActorUID, since)
	return act, since, nil
}

// open binds, tests and serves. After an error the activation has ended.
func (m *Manager) open(ctx context.Context, ch *channel, act *ingest.Activation) (*door, error) {
	name := ch.c.Name()
	workload := ch.c.Class() == ingest.Workload
	spec := ch.spec // busy: nobody else writes it
	var ls []net.Listener
	bound := slices.Clone(spec.addresses())
	for i, a := range bound {
		l, err := bind(ctx, a, spec)
		if err != nil {
			for _, l := range ls {
				l.Close()
			}
			if workload {
				act.End()
			}
			return nil, fmt.Errorf("channel %s: listen: %w", name, err)
		}
		if a.Network == "tcp" {
			bound[i].Addr = l.Addr().String()
		}
		ls = append(ls, l)
	}
	d := newDoor(act, ls, m.o.Log)
	if err := m.test(ctx, bound, d); err != nil {
		d.stop(m.o.Grace, workload)
		return nil, fmt.Errorf("channel %s: %w", name, err)
	}
	ch.addrMu.Lock()
	ch.spec.Listen, ch.opened = bound, true // the same from now on
	ch.addrMu.Unlock()
	close(d.ready)
	return d, nil
}

func bind(ctx context.Context, a Address, s Spec) (net.Listener, error) {
	if a.Network == "unix" {
		l, err := listenUnix(a.Addr, s.mode(), s.Group)
		if err != nil {
			return nil, err
		}
		return access.Listen(l), nil // who is at the other end may be all the credential there is
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", a.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, errno(err))
	}
	return l, nil
}

// test lets the door accept and asks it at its own addresses (S2-12). It connects
// before anything is accepted, so as to be first in the queue of a channel that
// has few connections.
func (m *Manager) test(ctx context.Context, at []Address, d *door) error {
	ctx, done := context.WithTimeout(ctx, m.o.Patience)
	defer done()
	conns := make([]net.Conn, len(at))
	var err error
	for i, a := range at {
		if conns[i], err = m.o.Dial(ctx, a.Network, a.Addr); err != nil {
			err = a.untested(err)
			break
		}
		defer conns[i].Close()
	}
	d.serve()
	for i, a := range at {
		if err == nil {
			err = Ask(ctx, func(context.Context, string, string) (net.Conn, error) { return conns[i], nil }, a, d.proof())
		}
	}
	return err
}

// End ends what is live on a channel: it returns when nothing that it has
// accepted is left. The channel stays, to be activated again at the same address.
func (m *Manager) End(name string) (State, error) {
	ch, err := m.existing(name)
	if err != nil {
		return State{}, err
	}
	if ch.fixed && ch.c.Class() == ingest.Node {
		return State{}, refuse(ErrConflict, "channel %s: is a node channel of the configuration; take it out there and restart", name)
	}
	m.end(ch)
	m.remember(name, m.standing.remove(name))
	if !m.has(ch) {
		return State{}, noChannel(name) // forgotten meanwhile
	}
	return ch.state(), nil
}

// remember says that what stands in the file is not what is so.
func (m *Manager) remember(name string, err error) {
	if err != nil {
		m.o.Log.Warn("a restart will not know whether the channel was live", "channel", name, "err", err)
	}
}

func (m *Manager) end(ch *channel) {
	ch.busy.Lock()
	defer ch.busy.Unlock()
	d := ch.live()
	if d == nil {
		return
	}
	d.stop(m.o.Grace, ch.c.Class() == ingest.Workload)
	ch.addrMu.Lock()
	ch.door = nil
	ch.addrMu.Unlock()
	m.o.Log.Info("channel ended", "channel", ch.c.Name())
}

// Close ends every channel. Nothing can be activated after it has been called.
// What was live stands: the next start goes on with it.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	all := make([]*channel, 0, len(m.channels))
	for _, ch := range m.channels {
		all = append(all, ch)
	}
	m.mu.Unlock()
	var ending sync.WaitGroup
	for _, ch := range all {
		ending.Go(func() { m.end(ch) })
	}
	ending.Wait()
}
