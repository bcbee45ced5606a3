package warden

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

// cell is a device in memory that keeps every value that it was ever given
// outside of what the warden may write.
type cell struct {
	desc  actuate.Description
	mu    sync.Mutex
	value float64
	n     int
	bad   []float64
}

func (c *cell) Describe() actuate.Description { return c.desc }

func (c *cell) Read() (actuate.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return actuate.State{Value: c.value}, nil
}

func (c *cell) Write(s actuate.Setting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if !(s.Value >= 80 && s.Value <= 200) { // 40 % of the default to the original
		c.bad = append(c.bad, s.Value)
	}
	c.value = s.Value
	return nil
}

func (c *cell) Restore(st actuate.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.Value != 200 {
		c.bad = append(c.bad, st.Value)
	}
	c.value = st.Value
	return nil
}

// line is a warden that serves a peer which may send anything.
type line struct {
	*rig
	cells []*cell
	peer  *os.File
	done  chan error
	heard chan struct{} // one for each batch that was answered
	clock atomic.Int64
}

func dialLine(t testing.TB) *line {
	t.Helper()
	l := &line{done: make(chan error, 1), heard: make(chan struct{}, 1<<16)}
	l.clock.Store(int64(time.Hour))
	var devices []actuate.Device
	for _, name := range []string{"a", "b"} {
		c := &cell{desc: plugDescription(name), value: 200}
		l.cells, devices = append(l.cells, c), append(devices, c)
	}
	l.rig = bench(t, func(o *Options) {
		o.Clock = func() time.Duration { return time.Duration(l.clock.Load()) }
		if dir, err := os.MkdirTemp("/dev/shm", "warden"); err == nil { // many fsyncs, and none to be proved here
			t.Cleanup(func() { os.RemoveAll(dir) })
			o.StatePath = dir
		}
	}, devices...)
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := actuate.NewConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	l.peer = theirs
	go func() { l.done <- l.serve(&engine{conn: conn, born: time.Now()}) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(l, readAlways{theirs})
	}()
	t.Cleanup(func() {
		unix.Shutdown(int(theirs.Fd()), unix.SHUT_RDWR)
		if err := <-l.done; err != nil {
			t.Errorf("serve = %v", err)
		}
		<-read
		theirs.Close()
	})
	return l
}

// Write is given what the warden sends.
func (l *line) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte(`{"type":"replies"`)) {
		l.heard <- struct{}{}
	}
	return len(b), nil
}

// readAlways reads packets of any length.
type readAlways struct{ f *os.File }

func (r readAlways) Read(b []byte) (int, error) {
	n, _, err := unix.Recvfrom(int(r.f.Fd()), b, 0)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (l *line) send(packet []byte) {
	l.t.Helper()
	if err := unix.Sendto(int(l.peer.Fd()), packet, 0, nil); err != nil && !errors.Is(err, unix.EMSGSIZE) {
		l.t.Fatalf("packet of %d bytes: %v", len(packet), err)
	}
}

// sane checks the tree oracle, and that the warden still does what an honest
// engine asks.
func (l *line) sane() {
	l.t.Helper()
	cmd := set("plug:a", 123)
	cmd.Control = "honest"
	data, err := json.Marshal(actuate.Message{Type: actuate.TypeCommands, ID: 1, Commands: []actuate.Command{cmd}})
	if err != nil {
		l.t.Fatal(err)
	}
	waitFor(l.t, "the warden to carry out an honest command", func() bool {
		l.knobs[0].restoreNow(false) // what is held for protection binds the honest too
		l.send(data)
		time.Sleep(time.Millisecond)
		return l.state("plug:a").Owner == "honest"
	})
	for _, c := range l.cells {
		c.mu.Lock()
		if len(c.bad) > 0 {
			l.t.Errorf("%s was given %v", c.desc.ID, c.bad)
		}
		c.mu.Unlock()
	}
}

// What cannot be a message is counted, and the connection goes on.
func TestNoMessage(t *testing.T) {
	l := dialLine(t)
	for _, packet := range [][]byte{
		[]byte("x"), []byte("{}"), []byte("null"), []byte("[]"), []byte(`{"type":"commands","commands":7}`),
		[]byte(`{"type":"commands"}`), []byte(`{"type":"hello","version":99}`), []byte(`{"type":"stop"}`),
		[]byte(`{"type":"commands","commands":[{"op":"set","device":"plug:a","value":1e999,"control":"x","purpose":"efficiency"}]}`),
		bytes.Repeat([]byte("["), 100_000), bytes.Repeat([]byte{0}, actuate.MaxMessage+1), bytes.Repeat([]byte{0xff}, actuate.MaxMessage),
		[]byte(`{"type":"commands","commands":[` + strings.Repeat("{},", 5000) + `{}]}`),
		[]byte(`{"type":"commands","commands":[{"device":"` + strings.Repeat(`\u0000`, 10000) + `"}]}`),
	} {
		l.send(packet)
	}
	l.sane()
	if l.bad.n.Load() == 0 {
		t.Error("nothing was counted")
	}
}

// Files that an engine sends are not taken: nobody can fill the warden's table
// of descriptors.
func TestNoFilesTaken(t *testing.T) {
	l := dialLine(t)
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before := count()
	for range 50 {
		if err := unix.Sendmsg(int(l.peer.Fd()), []byte(`{"type":"heartbeat"}`), unix.UnixRights(int(l.peer.Fd())), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.sane()
	if after := count(); after > before+5 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// An engine that sends nothing but rubbish loses its connection.
func TestRubbishEnds(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := actuate.NewConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	r := bench(t, nil, &cell{desc: plugDescription("a"), value: 200})
	done := make(chan error, 1)
	go func() { done <- r.serve(&engine{conn: conn, born: time.Now()}) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(io.Discard, readAlways{theirs})
	}()
	for range maxBad + 1 {
		if err := unix.Sendto(int(theirs.Fd()), []byte("rubbish"), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err == nil {
		t.Error("serve = nil; want an error")
	}
	conn.Close()
	<-read
	theirs.Close()
}

// packets makes messages out of arbitrary bytes: as they are, or as commands
// whose fields they choose, numbers that JSON cannot say included.
func packets(data []byte) [][]byte {
	var out [][]byte
	take := func(n int) []byte {
		b := make([]byte, n)
		data = data[copy(b, data):]
		return b
	}
	number := func() string {
		b := take(9)
		v := math.Float64frombits(binary.LittleEndian.Uint64(b[1:]))
		switch b[0] % 40 {
		case 0:
			return fmt.Sprint(v) // NaN and Inf are no JSON
		case 1:
			return "1e999"
		case 2:
			return fmt.Sprint(-float64(b[1]))
		case 3:
			return "0"
		default:
			return fmt.Sprint(float64(b[1]) + float64(b[2])/256)
		}
	}
	pick := func(words ...string) string { return words[int(take(1)[0])%len(words)] }
	for len(data) > 0 {
		if take(1)[0]%8 == 0 {
			out = append(out, take(1+int(take(1)[0]))) // an empty packet is the end of a connection
			continue
		}
		var cmds []string
		for range 1 + take(1)[0]%4 {
			cmds = append(cmds, fmt.Sprintf(`{"seq":%d,"op":%q,"device":%q,"value":%s,"strict":%s,"control":%q,"key":%q,"purpose":%q,"on_stop":%q,"ttl_ms":%d,"safe_cap":%s}`,
				take(1)[0], pick("set", "set", "set", "renew", "hold", "release", "drop"), pick("plug:a", "plug:b", "plug:b", "plug:c", ""),
				number(), pick("true", "false"), pick("x", "y", "z", ""), pick("", "k"), pick("efficiency", "protection", ""), pick("", "hold", "?"),
				int64(binary.LittleEndian.Uint64(take(8))), number()))
		}
		out = append(out, []byte(`{"type":"commands","id":1,"commands":[`+strings.Join(cmds, ",")+`]}`))
	}
	return out
}

// P9: whatever an engine sends, no value outside of the limits is ever written.
func FuzzProtocol(f *testing.F) {
	f.Add([]byte("\x01\x00\x07\x00\x00\x04\x96\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte(`{"type":"commands"}`))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4, 5, 250, 99}, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := dialLine(t)
		for _, p := range packets(data) {
			l.send(p)
		}
		l.sane()
	})
}

// The same with many messages over one connection, while time goes on.
func TestProtocolFlood(t *testing.T) {
	l := dialLine(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	batches, bad := 0, 0
	for range 300 {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		for _, p := range packets(data) {
			var m actuate.Message
			switch json.Unmarshal(p, &m) {
			case nil:
				l.send(p)
				<-l.heard
				batches++
			default:
				if bad++; bad < maxBad/2 { // else the connection ends
					l.send(p)
				}
			}
		}
		l.clock.Add(int64(rnd.IntN(120)) * int64(time.Second))
		l.look()
	}
	l.sane()
	var writes int
	for _, c := range l.cells {
		writes += c.n
	}
	t.Logf("%d batches, %d packets that are none, %d writes", batches, bad, writes)
	if batches < 1000 || writes < 100 {
		t.Errorf("%d batches made %d writes: this proves little", batches, writes)
	}
}
