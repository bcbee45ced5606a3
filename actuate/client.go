package actuate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrGone is returned when the warden has ended or closed the connection. An
// engine without a warden can do nothing to the hardware, and ends too.
var ErrGone = errors.New("actuate: the warden is gone")

const (
	heartbeatEvery = 2 * time.Second
	greetingLimit  = 10 * time.Second
	sendLimit      = 2 * time.Second // how long a Send waits for a reader that does not read
)

// Meter is a file that only root may open, handed over open by the warden.
type Meter struct {
	MeterInfo
	File *os.File // for reading; closed by Client.Close
}

// Client is the engine's end of the connection to the warden. Its methods may
// be called by several goroutines.
type Client struct {
	conn    *Conn
	alive   func() bool
	meters  []Meter
	reload  chan struct{}
	stop    chan struct{}
	gone    chan struct{}
	workers sync.WaitGroup

	mu      sync.Mutex
	devices []DeviceState // sorted by ID
	waiting map[uint64]chan []Reply
	lastID  uint64
	stopped bool  // stop is closed
	goneBy  error // why gone is closed
}

var _ Link = (*Client)(nil)

// Connect takes over the engine's end of the pair, which the warden leaves at
// descriptor 3, and waits for the warden's greeting. From then on a heartbeat
// goes out every two seconds while alive, which may be nil, says true; the
// warden kills an engine that has been silent for ten. Close ends all of it.
func Connect(f *os.File, alive func() bool) (*Client, error) {
	conn, err := NewConn(f)
	if err != nil {
		return nil, err
	}
	c := &Client{
		conn: conn, alive: alive,
		reload: make(chan struct{}, 1), stop: make(chan struct{}), gone: make(chan struct{}),
		waiting: make(map[uint64]chan []Reply),
	}
	if err := c.greet(); err != nil {
		conn.Close()
		c.closeMeters()
		return nil, fmt.Errorf("actuate: greeting of the warden: %w", err)
	}
	c.workers.Go(c.read)
	c.workers.Go(c.beat)
	return c, nil
}

// Meters are the files that the warden opened, in the order of their names.
func (c *Client) Meters() []Meter { return slices.Clone(c.meters) }

// Reload receives a value when the rules are to be read again.
func (c *Client) Reload() <-chan struct{} { return c.reload }

// Stop is closed when the engine is to come to an end.
func (c *Client) Stop() <-chan struct{} { return c.stop }

// Gone is closed when the warden has ended or the connection broke.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Devices returns the state of every device, sorted by ID, as the warden told
// it last: with each answer to Do, and once a second.
func (c *Client) Devices() []DeviceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.devices)
}

// Ready tells the warden that start-up is over. An engine that exits before
// has failed to start, and the warden ends with the same exit code; one that
// exits later is started again.
func (c *Client) Ready() error { return c.conn.Send(Message{Type: TypeReady}) }

// Do has the warden carry out the commands and returns a reply for each, in
// the same order. Commands of one control and key stand or fall together. An
// error says that nothing is known of any of them: ErrGone, the end of ctx, or
// more commands than fit a message.
func (c *Client) Do(ctx context.Context, cmds []Command) ([]Reply, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	for _, cmd := range cmds {
		if !finite(cmd.Value) || !finite(cmd.SafeCap) {
			return nil, fmt.Errorf("actuate: %s: %s: value %g, safe cap %g: want finite numbers",
				cmd.Device, cmd.Control, cmd.Value, cmd.SafeCap)
		}
	}
	id, answer := c.expect()
	defer c.forget(id)
	if err := c.conn.Send(Message{Type: TypeCommands, ID: id, Commands: cmds}); err != nil {
		return nil, err
	}
	select {
	case replies := <-answer:
		if len(replies) != len(cmds) {
			return nil, fmt.Errorf("actuate: %d replies to %d commands", len(replies), len(cmds))
		}
		return replies, nil
	case <-c.gone:
		return nil, fmt.Errorf("%w: %w", ErrGone, c.goneErr())
	case <-ctx.Done():
		return nil, fmt.Errorf("actuate: %d commands: %w", len(cmds), context.Cause(ctx))
	}
}

// Close ends the connection, waits for the client's goroutines and closes the
// meters. The warden takes it for the end of the engine.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.workers.Wait()
	c.closeMeters()
	return err
}

func (c *Client) greet() error {
	if err := c.conn.unix.SetReadDeadline(after(greetingLimit)); err != nil {
		return err
	}
	for first := true; ; first = false {
		m, files, err := c.conn.ReceiveFiles()
		if err != nil {
			return err
		}
		switch {
		case first && (m.Type != TypeHello || m.Version != ProtocolVersion):
			closeAll(files)
			return fmt.Errorf("%q of version %d, want a hello of version %d", m.Type, m.Version, ProtocolVersion)
		case len(files) != len(m.Meters):
			closeAll(files)
			return fmt.Errorf("%d meters with %d files", len(m.Meters), len(files))
		}
		for i, info := range m.Meters {
			c.meters = append(c.meters, Meter{MeterInfo: info, File: files[i]})
		}
		c.learn(m.Devices)
		if m.Type == TypeWelcome {
			return c.conn.unix.SetReadDeadline(time.Time{})
		}
	}
}

func (c *Client) read() {
	for {
		m, err := c.conn.Receive()
		if errors.Is(err, ErrMessage) {
			continue // a warden of this binary sends none; skipping one loses an answer, and Do's ctx ends
		}
		if err != nil {
			c.lose(err)
			return
		}
		c.learn(m.Devices)
		switch m.Type {
		case TypeReplies:
			c.answer(m.ID, m.Replies)
		case TypeReload:
			select {
			case c.reload <- struct{}{}:
			default: // one is waiting already
			}
		case TypeStop:
			c.halt()
		}
	}
}

func (c *Client) beat() {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		if c.alive == nil || c.alive() {
			if err := c.conn.Send(Message{Type: TypeHeartbeat}); err != nil {
				c.lose(err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-c.gone:
			return
		}
	}
}

// learn takes over what a message says of the devices.
func (c *Client) learn(devices []DeviceState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range devices {
		i, found := slices.BinarySearchFunc(c.devices, d.ID, func(have DeviceState, id string) int {
			return strings.Compare(have.ID, id)
		})
		if found {
			c.devices[i] = d
		} else {
			c.devices = slices.Insert(c.devices, i, d)
		}
	}
}

func (c *Client) expect() (uint64, chan []Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	answer := make(chan []Reply, 1)
	c.waiting[c.lastID] = answer
	return c.lastID, answer
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Client) answer(id uint64, replies []Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer, ok := c.waiting[id]; ok {
		delete(c.waiting, id)
		answer <- replies
	}
}

func (c *Client) halt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.stopped = true
		close(c.stop)
	}
}

func (c *Client) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goneBy == nil {
		c.goneBy = err
		close(c.gone)
	}
}

func (c *Client) goneErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goneBy
}

func (c *Client) closeMeters() {
	for _, m := range c.meters {
		m.File.Close()
	}
}

// after is for the deadlines of the socket, which the kernel keeps in wall time.
func after(d time.Duration) time.Time { return time.Now().Add(d) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
