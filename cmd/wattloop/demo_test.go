package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// demoCommand is `wattloop demo -o json` in a folder of its own.
func demoCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := exec.LookPath("wattloop")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"demo", "-o", "json", "--dir", filepath.Join(t.TempDir(), "demo")}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

type demoEvent struct {
	Event, Device, Phase string
	From                 float64 `json:"from_watts"`
	To                   float64 `json:"to_watts"`
	summary
}

func events(t *testing.T, out string) []demoEvent {
	t.Helper()
	var all []demoEvent
	for line := range strings.Lines(out) {
		var e demoEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// The whole arc: load, engaged, caps written and given back by the control
// itself, before the end.
func TestDemoArc(t *testing.T) {
	cmd := demoCommand(t, "--for", "40s", "--speed", "10")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, string(out))
	var phases []string
	lowest := map[string]float64{}
	last := map[string]float64{}
	for _, e := range all {
		switch e.Event {
		case "control":
			phases = append(phases, e.Phase)
		case "cap":
			if l, ok := lowest[e.Device]; !ok || e.To < l {
				lowest[e.Device] = e.To
			}
			last[e.Device] = e.To
		}
	}
	if got := strings.Join(phases, " "); got != "engaged releasing idle" {
		t.Errorf("phases %q; want engaged releasing idle", got)
	}
	for _, dev := range []string{"cpu0", "cpu1"} {
		if lowest[dev] < 100 || lowest[dev] > 130 {
			t.Errorf("%s: lowest cap %g W; want about 110", dev, lowest[dev])
		}
		if last[dev] != 250 {
			t.Errorf("%s: last cap %g W; want 250", dev, last[dev])
		}
	}
	end := all[len(all)-1].summary
	if end.CapsEngaged != 2 || !end.Restored || len(end.WrittenMicrowatts) < 4 {
		t.Errorf("the last line says %+v", end)
	}
}

// Ctrl-C reaches the whole process group; everything is given back, exit 0.
func TestDemoInterrupted(t *testing.T) {
	cmd := demoCommand(t, "--speed", "10")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	interrupted := false
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if !interrupted && strings.Contains(lines.Text(), `"event":"cap"`) {
			interrupted = true
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("demo ended with %v:\n%s", err, out.String())
	}
	all := events(t, out.String())
	if end := all[len(all)-1].summary; !end.Restored || end.CapsEngaged == 0 {
		t.Errorf("the last line says %+v", end)
	}
	if _, err := os.Stat(cmd.Args[len(cmd.Args)-3]); !os.IsNotExist(err) {
		t.Errorf("the demo's folder is still there: %v", err)
	}
}

// A folder that is not the demo's is left alone.
func TestDemoKeepsForeignFolders(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(mine, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := freshDir(dir)
	if err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("freshDir took a folder that is not its own: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
