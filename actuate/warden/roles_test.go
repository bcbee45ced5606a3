package warden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// The test binary plays the engine and, where the warden must die, the warden.
const roleEnv = "WATTLOOP_WARDEN_TEST_ROLE"

// part is what the environment tells a process that plays a role.
type part struct {
	Role  string  // engine, warden
	Dir   string  // sys, state, run and the switches of the engine lie in it
	Mode  string  // of the engine
	Fault string  // where the warden kills itself
	TTLMS int64   // of the leases that the engine asks for
	Value float64 // that it sets
	Guard bool    // under protection
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	var p part
	if err := json.Unmarshal([]byte(role), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	if p.Role == "warden" {
		os.Exit(playWarden(p))
	}
	os.Exit(playEngine(p))
}

// as is an environment that makes the test binary play p.
func as(p part) []string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return []string{roleEnv + "=" + string(b)}
}

// playWarden runs a warden over dir/sys until SIGTERM, and kills itself at the
// fault point that it was given.
func playWarden(p part) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := options(p)
	o.Devices = nil
	dirs, err := os.ReadDir(filepath.Join(p.Dir, "sys"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	for _, d := range dirs {
		o.Devices = append(o.Devices, &plug{dir: filepath.Join(p.Dir, "sys", d.Name()), desc: plugDescription(d.Name())})
	}
	o.Fault = func(point string) {
		if point == p.Fault {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// playEngine sets every device of the warden again and again while the file
// dir/input is there.
func playEngine(p part) int {
	signal.Ignore(syscall.SIGINT)
	c, err := actuate.Connect(os.NewFile(3, "warden"), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	defer c.Close()
	switch p.Mode {
	case "fails":
		return 3
	case "confess":
		if err := confess(p, c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 96
		}
	}
	if err := c.Ready(); err != nil {
		return 95
	}
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		if _, err := os.Stat(filepath.Join(p.Dir, "input")); err == nil {
			var cmds []actuate.Command
			for _, d := range c.Devices() {
				cmd := set(d.ID, p.Value)
				if p.Guard {
					cmd = guard(d.ID, p.Value)
				}
				cmd.TTLMillis = p.TTLMS
				if _, err := os.Stat(filepath.Join(p.Dir, "release")); err == nil {
					cmd.Op = actuate.OpRelease
				}
				cmds = append(cmds, cmd)
			}
			if _, err := c.Do(context.Background(), cmds); err != nil {
				return 0
			}
		}
		select {
		case <-c.Stop():
			return 0
		case <-c.Gone():
			return 0
		case <-c.Reload():
			os.WriteFile(filepath.Join(p.Dir, "shared", "reloaded"), nil, 0o644)
		case <-beat.C:
		}
	}
}

// confess writes down what the engine's process may do.
func confess(p part, c *actuate.Client) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	out := map[string]string{"uid": strconv.Itoa(os.Getuid()), "groups": ""}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "CapEff", "CapPrm", "NoNewPrivs", "Groups":
			out[name] = strings.TrimSpace(value)
		}
	}
	for _, m := range c.Meters() {
		b, err := io.ReadAll(io.NewSectionReader(m.File, 0, 100))
		if err != nil {
			return err
		}
		out["meter "+m.Name] = string(b) + string(m.Meta)
	}
	for name, path := range map[string]string{"originals": "state/warden/originals.json", "tree": "sys/a/limit"} {
		f, err := os.OpenFile(filepath.Join(p.Dir, path), os.O_RDWR, 0)
		out[name] = "open"
		if err != nil {
			out[name] = errors.Unwrap(err).Error()
		} else {
			f.Close()
		}
	}
	if err := os.Rename(filepath.Join(p.Dir, "run", "warden"), filepath.Join(p.Dir, "run", "x")); err != nil {
		out["rename"] = err.(*os.LinkError).Err.Error()
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.Dir, "shared", "confession"), b, 0o644)
}

// options are those of a warden over dir, with the engine of p.
func options(p part) Options {
	p.Role = "engine"
	return Options{
		StatePath: filepath.Join(p.Dir, "state"), RunPath: filepath.Join(p.Dir, "run"),
		Dirs:    []string{filepath.Join(p.Dir, "shared")},
		Enabled: true, Tick: 50 * time.Millisecond,
		Engine: Spawn{Args: []string{"wattloop", "engine"}, Env: as(p), Stderr: os.Stderr},
	}
}
