package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/sim"
)

// screen prints a demo: text for people, or one JSON object an event.
type screen struct {
	json   bool
	tty    bool
	out    io.Writer
	clk    clock
	budget float64
	dir    string
	drawn  bool      // the last line may be drawn over
	next   time.Time // when the next line of numbers is due, wall clock
	err    error     // of the first write that failed
}

func newScreen(output string, stdout, _ io.Writer, clk clock) *screen {
	return &screen{json: output == "json", tty: isTerminal(stdout), out: stdout, clk: clk}
}

func (s *screen) text(format string, args ...any) {
	if s.json {
		return
	}
	if s.drawn {
		fmt.Fprint(s.out, "\r\033[K")
		s.drawn = false
	}
	s.keep(fmt.Fprintf(s.out, format+"\n", args...))
}

func (s *screen) event(fields map[string]any) {
	if !s.json {
		return
	}
	fields["time"] = s.clk.Now().UTC().Format(time.RFC3339Nano)
	b, err := json.Marshal(fields)
	if err == nil {
		_, err = s.out.Write(append(b, '\n'))
	}
	s.keep(0, err)
}

// keep remembers the first write that failed. A reader that has gone, as head
// does, ends the demo and is no failure.
func (s *screen) keep(_ int, err error) {
	if s.err == nil && !errors.Is(err, syscall.EPIPE) {
		s.err = err
	}
}

func (s *screen) intro(o demoOptions) {
	s.budget, s.dir = sim.Budget(o.gpus), o.dir
	s.text("simulated node worker-01: 2 CPU packages, %s, sysfs tree %s/sys; nothing on this machine is touched", plural(o.gpus, "GPU"), o.dir)
	s.text("budget %g W for CPU packages and GPUs; the observation period before a first write is 0 here (30 s on a real machine)%s", s.budget, atSpeed(o.speed))
	s.event(map[string]any{"event": "start", "gpus": o.gpus, "budget_watts": s.budget, "speed": o.speed, "observe_first_seconds": 0})
}

func atSpeed(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("; everything runs %d times as fast", n)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (s *screen) started(addr map[string]string) {
	s.text("api  http://%s/   otlp  grpc %s, http %s   20 minutes of history are stored", addr["web"], addr["otlp-grpc"], addr["otlp-http"])
	s.text("try this, in another terminal:\n  wattloop status --api.socket %s/wattloop.sock\n  wattloop query 'wattloop_reading' --api.socket %s/wattloop.sock\n  wattloop rules explain node_power_budget --rules %s/rules.yaml", s.dir, s.dir, s.dir)
	s.event(map[string]any{"event": "listening", "addresses": addr, "history_seconds": history.Seconds()})
}

// clockText is the scaled clock's time of day.
func (s *screen) clockText() string { return s.clk.Now().Format("15:04:05") }

// phase tells that a control has changed its phase, and what the node draws.
func (s *screen) phase(c api.Control, power map[string]float64) {
	total := 0.0
	for _, w := range power {
		total += w
	}
	sign := "<="
	if total > s.budget {
		sign = ">"
	}
	s.text("%s  node draws %.0f W %s %g W -> %s %s", s.clockText(), total, sign, s.budget, c.Name, c.Phase)
	s.event(map[string]any{"event": "control", "control": c.Name, "phase": c.Phase, "node_watts": math.Round(total)})
}

func (s *screen) cap(d actuate.Description, was float64, st actuate.State) {
	file := "constraint"
	for f, v := range st.Files {
		if strings.HasSuffix(f, "power_limit_uw") && strings.TrimSpace(v) == strconv.FormatInt(microwatts(st.Value), 10) {
			file = f
		}
	}
	word := "applied"
	if st.Value == d.Default {
		word = "given back"
	}
	s.text("%s  %s cap %.0f -> %.0f W %s  (%s/sys/%s = %d)", s.clockText(), d.Name, was, st.Value, word, s.dir, file, microwatts(st.Value))
	s.event(map[string]any{"event": "cap", "device": d.Name, "from_watts": was, "to_watts": st.Value})
}

// line shows what the node draws now, redrawn in place on a terminal, else every
// ten seconds.
func (s *screen) line(at time.Time, st api.Status, power map[string]float64) {
	if s.json || time.Now().Before(s.next) {
		return
	}
	s.next = time.Now().Add(10 * time.Second)
	if s.tty {
		s.next = time.Now().Add(500 * time.Millisecond)
	}
	total := 0.0
	var parts []string
	for _, name := range sortedKeys(power) {
		total += power[name]
		parts = append(parts, fmt.Sprintf("%s %.0f", name, power[name]))
	}
	caps := "none"
	var held []string
	for _, d := range st.Devices {
		if d.Owner != "" && d.Applied != nil {
			held = append(held, fmt.Sprintf("%s %.0f W", d.Name, float64(*d.Applied)))
		}
	}
	if len(held) > 0 {
		caps = strings.Join(held, " ")
	}
	text := fmt.Sprintf("%s  %.0f W of %g W   %s   caps %s", at.Format("15:04:05"), total, s.budget, strings.Join(parts, " "), caps)
	if s.tty {
		s.keep(fmt.Fprintf(s.out, "\r\033[K%s", text))
		s.drawn = true
		return
	}
	s.text("%s", text)
}

// summary is the last line of -o json.
type summary struct {
	CapsEngaged       int     `json:"caps_engaged"`
	WrittenMicrowatts []int64 `json:"written_microwatts"`
	Restored          bool    `json:"restored"`
}

func (s *screen) end(held map[string]float64, restored bool, engaged int, written []int64) error {
	var parts []string
	for _, name := range sortedKeys(held) {
		parts = append(parts, fmt.Sprintf("%s %.0f W", name, held[name]))
	}
	word := "caps restored"
	if !restored {
		word = "caps NOT restored"
	}
	s.text("%s: %s", word, strings.Join(parts, ", "))
	if s.json {
		if written == nil {
			written = []int64{}
		}
		b, err := json.Marshal(summary{engaged, written, restored})
		if err != nil {
			return err
		}
		_, err = s.out.Write(append(b, '\n'))
		s.keep(0, err)
	}
	return s.err
}
