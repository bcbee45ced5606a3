package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// served is one `wattloop serve` of a script.
type served struct {
	cmd  *exec.Cmd
	said lockedBuffer
	done chan struct{}
	err  error // of Wait, once done is closed
}

// serveArgs keep a serve inside the script's folder, on ports of its own choice.
func serveArgs(ts *testscript.TestScript) []string {
	at := func(name string) string { return ts.MkAbs(name) }
	return []string{"serve", "--state.path", at("state"), "--storage.path", at("data"), "--run.path", at("run"), "--sysfs", at("sys"),
		"--web.listen-address=127.0.0.1:0", "--otlp.grpc.listen-address=127.0.0.1:0", "--otlp.http.listen-address=127.0.0.1:0"}
}

// running are the serves of all scripts, by their folder.
var running sync.Map

func servedIn(ts *testscript.TestScript) *served {
	s, ok := running.Load(ts.Getenv("WORK"))
	if !ok {
		ts.Fatalf("no serve was started")
	}
	return s.(*served)
}

// serve FLAG... starts wattloop serve in the script's folder and waits until it
// listens. $WEB, $OTLP and $SOCK tell where, $WARDEN is its process. With a ! it
// does not wait: listens does.
func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	exe, err := exec.LookPath("wattloop")
	ts.Check(err)
	s := &served{cmd: exec.Command(exe, append(serveArgs(ts), args...)...), done: make(chan struct{})}
	s.cmd.Dir, s.cmd.Stderr = ts.MkAbs("."), &s.said
	s.cmd.Env = append(os.Environ(), "WATTLOOP_NODE=worker-01")
	ts.Check(s.cmd.Start())
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	running.Store(ts.Getenv("WORK"), s)
	ts.Defer(func() {
		s.cmd.Process.Kill() // a script that failed; else it has ended
		<-s.done
		ts.Logf("serve said:\n%s", s.said.String())
	})
	ts.Setenv("SOCK", ts.MkAbs("run/wattloop.sock"))
	ts.Setenv("WARDEN", strconv.Itoa(s.cmd.Process.Pid))
	if !neg {
		scriptListens(ts, false, nil)
	}
}

// listens waits until serve says so.
func scriptListens(ts *testscript.TestScript, _ bool, _ []string) {
	s := servedIn(ts)
	if !poll(func() bool { return s.over() || s.door("otlp-http") != "" }) || s.over() {
		ts.Fatalf("serve does not listen")
	}
	ts.Setenv("WEB", s.door("web"))
	ts.Setenv("OTLP", s.door("otlp-http"))
}

func (s *served) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *served) door(name string) string {
	m := regexp.MustCompile(`(?m)^listening on `+name+`=(.*)\n`).FindAllStringSubmatch(s.said.String(), -1)
	if m == nil {
		return ""
	}
	return m[len(m)-1][1]
}

// signal NAME [engine] sends TERM, INT, HUP or KILL to the warden or its child.
func scriptSignal(ts *testscript.TestScript, _ bool, args []string) {
	sig, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}[args[0]]
	if !ok {
		ts.Fatalf("no signal %s", args[0])
	}
	pid := servedIn(ts).cmd.Process.Pid
	if len(args) > 1 && args[1] == "engine" {
		child, err := childOf(pid)
		ts.Check(err)
		pid = child
	}
	ts.Check(syscall.Kill(pid, sig))
}

// ended [CODE] waits for serve and its child to end and wants the exit code, 0
// by default, -1 for a signal. What serve said is in the file said.
func scriptEnded(ts *testscript.TestScript, _ bool, args []string) {
	s, want := servedIn(ts), "0"
	if len(args) > 0 {
		want = args[0]
	}
	if !poll(s.over) {
		ts.Fatalf("serve does not end")
	}
	if got := strconv.Itoa(s.cmd.ProcessState.ExitCode()); got != want {
		ts.Fatalf("serve ended with %s (%v); want %s", got, s.err, want)
	}
	ts.Check(os.WriteFile(ts.MkAbs("said"), []byte(s.said.String()), 0o644))
	work := ts.Getenv("WORK") + "/"
	if !poll(func() bool {
		procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
		ts.Check(err)
		for _, p := range procs {
			if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(work)) {
				return false
			}
		}
		return true
	}) {
		ts.Fatalf("serve has ended, its child has not")
	}
}

// refused CODE FLAG... wants wattloop serve in the script's folder not to start.
func scriptRefused(ts *testscript.TestScript, neg bool, args []string) {
	scriptExits(ts, neg, append(append([]string{args[0], "wattloop"}, serveArgs(ts)...), args[1:]...))
}

// nowRef is a time in a posted file: @now@, @now-15s@, in nanoseconds.
var nowRef = regexp.MustCompile(`@now([-+][0-9a-z]+)?@`)

// stamped is an OTLP JSON file with its times filled in.
func stamped(ts *testscript.TestScript, file string) string {
	now := time.Now()
	return nowRef.ReplaceAllStringFunc(ts.ReadFile(file), func(ref string) string {
		var later time.Duration
		if text := nowRef.FindStringSubmatch(ref)[1]; text != "" {
			d, err := time.ParseDuration(text)
			ts.Check(err)
			later = d
		}
		return strconv.FormatInt(now.Add(later).UnixNano(), 10)
	})
}

// post [-socket PATH] FILE sends OTLP JSON over HTTP; ! post wants it refused.
func scriptPost(ts *testscript.TestScript, neg bool, args []string) {
	hc, host := http.DefaultClient, ts.Getenv("OTLP")
	if args[0] == "-socket" {
		path := ts.MkAbs(args[1])
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}
		defer tr.CloseIdleConnections()
		hc, host, args = &http.Client{Transport: tr}, "localhost", args[2:]
	}
	resp, err := hc.Post("http://"+host+"/v1/metrics", "application/json", strings.NewReader(stamped(ts, args[0])))
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if (resp.StatusCode == http.StatusOK) == neg {
		ts.Fatalf("post: %s", resp.Status)
	}
}

// feed FILE sends it again and again, as a producer does, until serve ends.
func scriptFeed(ts *testscript.TestScript, _ bool, args []string) {
	s, url, done := servedIn(ts), "http://"+ts.Getenv("OTLP")+"/v1/metrics", make(chan struct{})
	text := ts.ReadFile(args[0])
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			body := strings.ReplaceAll(text, "@now@", strconv.FormatInt(time.Now().UnixNano(), 10))
			if resp, err := http.Post(url, "application/json", strings.NewReader(body)); err == nil {
				resp.Body.Close() // while the engine is away there is nobody to take it
			}
			select {
			case <-s.done:
				return
			case <-tick.C:
			}
		}
	}()
	ts.Defer(func() { s.cmd.Process.Kill(); <-s.done; <-done })
}

// http METHOD PATH STATUS asks the web address; the body is standard output.
func scriptHTTP(ts *testscript.TestScript, _ bool, args []string) {
	cl := client{url: "http://" + ts.Getenv("WEB")}
	if len(args) > 3 && args[3] == "socket" {
		cl = client{socket: ts.Getenv("SOCK")}
	}
	hc, base := cl.httpClient()
	defer hc.CloseIdleConnections()
	req, err := http.NewRequest(args[0], base+args[1], nil)
	ts.Check(err)
	resp, err := hc.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if got := strconv.Itoa(resp.StatusCode); got != args[2] {
		ts.Fatalf("%s %s: %s; want %s", args[0], args[1], got, args[2])
	}
}

// burn WATTS lets the package draw that much from now on: its counter goes up.
func scriptBurn(ts *testscript.TestScript, _ bool, args []string) {
	watts, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(filepath.Join(packageDir, "energy_uj")), os.O_WRONLY, 0)
	ts.Check(err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer f.Close()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); ; {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				// One write of one length: a reader never meets half a number.
				fmt.Fprintf(io.NewOffsetWriter(f, 0), "%012.0f\n", 1e6+watts*1e6*now.Sub(start).Seconds())
			}
		}
	}()
	ts.Defer(func() { close(stop); <-done })
}

// dropped wants the engine to be an unprivileged user without a capability.
func scriptDropped(ts *testscript.TestScript, _ bool, _ []string) {
	pid, err := childOf(servedIn(ts).cmd.Process.Pid)
	ts.Check(err)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	ts.Check(err)
	for _, want := range []string{`(?m)^Uid:(\t[1-9][0-9]*){4}$`, `(?m)^Gid:(\t[1-9][0-9]*){4}$`, `(?m)^Groups:\s*$`,
		`(?m)^CapEff:\t0+$`, `(?m)^CapPrm:\t0+$`, `(?m)^CapAmb:\t0+$`, `(?m)^NoNewPrivs:\t1$`} {
		if !regexp.MustCompile(want).Match(b) {
			ts.Fatalf("the engine's status does not match %s:\n%s", want, b)
		}
	}
}
