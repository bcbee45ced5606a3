package warden

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

const (
	// maxBad is how many packets that are no messages one engine may send before
	// its connection is closed, and it with it.
	maxBad = 1000
	// maxWaiting is how many batches of commands may wait for the one at work.
	maxWaiting = 8
	// meterGroup is how many open files go with one message, chunk how many bytes
	// of device states.
	meterGroup = 64
	chunk      = actuate.MaxMessage / 2
)

// serve greets one engine and carries out what it says until it is gone.
func (w *warden) serve(e *engine) error {
	if err := w.greet(e.conn); err != nil {
		return ended(err)
	}
	e.hear()
	batches := make(chan actuate.Message, maxWaiting)
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for m := range batches {
			w.answer(e.conn, m.ID, m.Commands)
		}
	}()
	err := w.listenTo(e, batches)
	close(batches)
	<-worked
	return err
}

// listenTo reads the engine's messages. Nothing that it does waits for a
// device, so that a heartbeat is heard while a driver hangs.
func (w *warden) listenTo(e *engine, batches chan<- actuate.Message) error {
	bad := 0
	for {
		m, err := e.conn.Receive()
		if errors.Is(err, actuate.ErrMessage) {
			w.bad.note(w.opt.Log, "not a message", "err", err)
			if bad++; bad > maxBad {
				return fmt.Errorf("warden: engine: more than %d packets that are no messages", maxBad)
			}
			continue
		}
		if err != nil {
			return ended(err)
		}
		switch m.Type {
		case actuate.TypeHeartbeat:
			e.hear()
		case actuate.TypeReady:
			e.hear()
			if !e.ready.Swap(true) && w.opt.Ready != nil {
				w.opt.Ready()
			}
		case actuate.TypeCommands:
			if len(m.Commands) > maxBatch {
				w.bad.note(w.opt.Log, "too many commands in one message", "commands", len(m.Commands))
				m.Commands = nil // answered by no replies at all
			}
			select {
			case batches <- m:
			default:
				w.refuse(e.conn, m)
			}
		default:
			w.bad.note(w.opt.Log, "message of an unknown type")
		}
	}
}

// answer carries out a batch and sends what became of it: first the states of
// the devices, then the replies, so that whoever has the replies has both.
func (w *warden) answer(conn *actuate.Conn, id uint64, cmds []actuate.Command) {
	replies := w.do(cmds)
	var touched []actuate.DeviceState
	for _, k := range w.knobs {
		for _, cmd := range cmds {
			if cmd.Device == k.desc.ID {
				touched = append(touched, k.snapshot())
				break
			}
		}
	}
	w.sendDevices(conn, touched)
	w.sendReplies(conn, actuate.Message{Type: actuate.TypeReplies, ID: id, Replies: replies})
}

// refuse answers a batch that came while too many wait.
func (w *warden) refuse(conn *actuate.Conn, m actuate.Message) {
	w.bad.note(w.opt.Log, "too many batches at once")
	replies := make([]actuate.Reply, len(m.Commands))
	for i, cmd := range m.Commands {
		replies[i] = actuate.Reply{Seq: cmd.Seq, Device: cmd.Device[:min(len(cmd.Device), maxID)], Result: actuate.Blocked, Reason: actuate.ReasonBusy}
	}
	w.sendReplies(conn, actuate.Message{Type: actuate.TypeReplies, ID: m.ID, Replies: replies})
}

// sendReplies sends replies, without their texts when these are too long. A
// failure is that of the connection, which the reader of it sees too.
func (w *warden) sendReplies(conn *actuate.Conn, m actuate.Message) {
	const refused = "engine does not take its replies"
	if err := conn.Send(m); err == nil {
		w.forgetTrouble(refused)
		return
	}
	for i := range m.Replies {
		m.Replies[i].Message = ""
	}
	w.note(w.opt.Log, slog.LevelWarn, refused, conn.Send(m))
}

// greet sends what an engine needs to know, and the meters.
func (w *warden) greet(conn *actuate.Conn) error {
	if err := conn.Send(actuate.Message{Type: actuate.TypeHello, Version: actuate.ProtocolVersion}); err != nil {
		return err
	}
	w.sendDevices(conn, w.snapshots())
	for rest := w.opt.Meters; len(rest) > 0; {
		n := min(len(rest), meterGroup)
		m := actuate.Message{Type: actuate.TypeMeters}
		var files []*os.File
		for _, meter := range rest[:n] {
			m.Meters = append(m.Meters, meter.MeterInfo)
			files = append(files, meter.File)
		}
		if err := conn.Send(m, files...); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return conn.Send(actuate.Message{Type: actuate.TypeWelcome})
}

// sendDevices sends states in as many messages as they need.
func (w *warden) sendDevices(conn *actuate.Conn, devices []actuate.DeviceState) {
	for len(devices) > 0 {
		n, size := 0, 0
		for n < len(devices) {
			data, err := json.Marshal(devices[n])
			if err != nil {
				panic("BUG: device state: " + err.Error()) // all numbers in it are finite
			}
			if size += len(data); n > 0 && size > chunk {
				break
			}
			n++
		}
		if err := conn.Send(actuate.Message{Type: actuate.TypeDevices, Devices: devices[:n]}); err != nil {
			return // the reader of the connection sees its end
		}
		devices = devices[n:]
	}
}

// tellDevices sends states to the engine that runs, if one does.
func (w *warden) tellDevices(devices []actuate.DeviceState) {
	w.mu.Lock()
	e := w.engine
	w.mu.Unlock()
	if e != nil && e.heard.Load() > 0 { // greeted
		w.sendDevices(e.conn, devices)
	}
}

// tell sends a message to the engine that runs, if one does.
func (w *warden) tell(m actuate.Message) {
	w.mu.Lock()
	e := w.engine
	w.mu.Unlock()
	if e == nil {
		w.opt.Log.Warn("no engine to tell", "what", m.Type)
		return
	}
	if err := e.conn.Send(m); err != nil {
		w.opt.Log.Warn("engine not told", "what", m.Type, "err", err)
	}
}

// ended turns the end of a peer into no error: how it ended, its process says.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}
