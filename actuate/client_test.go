package actuate

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// far makes a pair, and lets f play the warden at its other end while the
// client connects.
func far(t *testing.T, f func(*Conn) error) (*Client, *Conn, error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	warden, err := NewConn(os.NewFile(uintptr(fds[0]), "warden"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { warden.Close() })
	played := make(chan error, 1)
	go func() { played <- f(warden) }()
	c, err := Connect(os.NewFile(uintptr(fds[1]), "engine"), nil)
	if perr := <-played; perr != nil {
		t.Error(perr)
	}
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, warden, err
}

func say(messages ...Message) func(*Conn) error {
	return func(c *Conn) error {
		for _, m := range messages {
			if err := c.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
}

var hello = Message{Type: TypeHello, Version: ProtocolVersion}

// next is the next message that is no heartbeat.
func next(t *testing.T, c *Conn) Message {
	t.Helper()
	for {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != TypeHeartbeat {
			return m
		}
	}
}

func device(id string, v float64) DeviceState {
	return DeviceState{Description: Description{ID: id, Reason: "device's"}, Current: v, Reason: "state's"}
}

func TestClientGreeting(t *testing.T) {
	name := t.TempDir() + "/energy_uj"
	if err := os.WriteFile(name, []byte("42\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, _, err := far(t, func(w *Conn) error {
		return errors.Join(
			w.Send(hello),
			w.Send(Message{Type: TypeDevices, Devices: []DeviceState{device("b", 2), device("a", 1)}}),
			w.Send(Message{Type: TypeMeters, Meters: []MeterInfo{{Name: "m", Meta: []byte(`{"zone":1}`)}}}, f),
			w.Send(Message{Type: TypeWelcome}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]DeviceState{device("a", 1), device("b", 2)}, c.Devices()); diff != "" {
		t.Error(diff)
	}
	meters := c.Meters()
	if len(meters) != 1 || meters[0].Name != "m" || string(meters[0].Meta) != `{"zone":1}` {
		t.Fatalf("meters %+v", meters)
	}
	for range 2 { // read by position: whoever reads first takes nothing from the next
		if b, err := io.ReadAll(io.NewSectionReader(meters[0].File, 0, 10)); err != nil || string(b) != "42\n" {
			t.Errorf("meter reads %q, %v", b, err)
		}
	}
}

func TestClientRefusesGreeting(t *testing.T) {
	f := func(want string, play func(*Conn) error) {
		t.Helper()
		if _, _, err := far(t, play); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Connect = %v; want an error with %q", err, want)
		}
	}
	f("version 2", say(Message{Type: TypeHello, Version: 2}))
	f("want a hello", say(Message{Type: TypeWelcome}))
	f("1 meters with 0 files", say(hello, Message{Type: TypeMeters, Meters: []MeterInfo{{Name: "m"}}}))
	f("EOF", func(w *Conn) error { return errors.Join(w.Send(hello), w.Close()) })
}

func TestClientDo(t *testing.T) {
	c, w, err := far(t, say(hello, Message{Type: TypeDevices, Devices: []DeviceState{device("a", 1)}}, Message{Type: TypeWelcome}))
	if err != nil {
		t.Fatal(err)
	}
	cmds := []Command{{Seq: 7, Op: OpSet, Device: "a", Value: 150, Control: "x", TTLMillis: 5000}}
	want := []Reply{{Seq: 7, Device: "a", Applied: 150, Granted: 150, Result: Applied}}
	go func() {
		m := next(t, w)
		if diff := cmp.Diff(cmds, m.Commands); diff != "" {
			t.Error(diff)
		}
		err := say(
			Message{Type: TypeReplies, ID: m.ID + 99, Replies: []Reply{{}, {}}}, // of nobody
			Message{Type: TypeDevices, Devices: []DeviceState{device("a", 150)}},
			Message{Type: TypeReplies, ID: m.ID, Replies: want},
		)(w)
		if err != nil {
			t.Error(err)
		}
	}()
	got, err := c.Do(t.Context(), cmds)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := c.Devices(); got[0].Current != 150 {
		t.Errorf("device at %g after the reply; want 150", got[0].Current)
	}

	if _, err := c.Do(t.Context(), []Command{{Value: math.NaN()}}); err == nil {
		t.Error("a command with NaN was sent")
	}
	if got, err := c.Do(t.Context(), nil); got != nil || err != nil {
		t.Errorf("Do of nothing = %v, %v", got, err)
	}
	if _, err := c.Do(t.Context(), []Command{{Key: strings.Repeat("k", MaxMessage)}}); err == nil {
		t.Error("a message that is too long was sent")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { next(t, w); cancel() }()
	if _, err := c.Do(ctx, cmds); !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v; want %v", err, context.Canceled)
	}
	go func() { next(t, w); w.Close() }()
	if _, err := c.Do(t.Context(), cmds); !errors.Is(err, ErrGone) {
		t.Errorf("Do = %v; want %v", err, ErrGone)
	}
}

func TestClientOrders(t *testing.T) {
	c, w, err := far(t, say(hello, Message{Type: TypeWelcome}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	if m := next(t, w); m.Type != TypeReady {
		t.Errorf("message %q; want %q", m.Type, TypeReady)
	}
	// Two reloads that nobody waited for are one.
	if err := say(Message{Type: TypeReload}, Message{Type: TypeReload}, Message{Type: "unheard of"}, Message{Type: TypeStop}, Message{Type: TypeStop})(w); err != nil {
		t.Fatal(err)
	}
	<-c.Stop()
	<-c.Reload()
	select {
	case <-c.Reload():
		t.Error("a second reload")
	default:
	}
	w.Close()
	<-c.Gone()
}

// A client that is not alive is silent, so that the warden kills it.
func TestClientHeartbeat(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewConn(os.NewFile(uintptr(fds[0]), "warden"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := say(hello, Message{Type: TypeWelcome})(w); err != nil {
		t.Fatal(err)
	}
	asked := make(chan bool)
	c, err := Connect(os.NewFile(uintptr(fds[1]), "engine"), func() bool { return <-asked })
	if err != nil {
		t.Fatal(err)
	}
	asked <- true
	if m, err := w.Receive(); err != nil || m.Type != TypeHeartbeat {
		t.Errorf("first message %q, %v; want a heartbeat", m.Type, err)
	}
	asked <- false
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	if m, err := w.Receive(); err != nil || m.Type != TypeReady {
		t.Errorf("message %q, %v; want no heartbeat before it", m.Type, err)
	}
	close(asked)
	c.Close()
}
