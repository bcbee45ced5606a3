package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you accept it")

// TestScript runs what a person would type. One behaviour a file.
func TestScript(t *testing.T) { runScripts(t, "../../testdata/script") }

// TestScriptPresets replays a recording through each preset.
func TestScriptPresets(t *testing.T) {
	dirs, err := filepath.Glob("../../presets/*/*.txtar")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%d scripts: %v", len(dirs), err)
	}
	for _, f := range dirs {
		runScripts(t, filepath.Dir(f))
	}
}

// TestScriptRules replays recordings through each shipped rule file.
func TestScriptRules(t *testing.T) { runScripts(t, "../../rules.d") }

func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir: dir, UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Deadline: time.Now().Add(5 * time.Minute), // a serve that should have ended and does not
		Setup:    func(e *testscript.Env) error { return openUp(e.WorkDir) },
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     scriptExits,
			"machine":   scriptMachine,
			"occupy":    scriptOccupy,
			"await":     scriptAwait,
			"holds":     scriptHolds,
			"alone":     scriptAlone,
			"case":      scriptCopyCase,
			"uncomment": scriptUncomment,
			"expand":    scriptExpand,
			"serve":     scriptServe,
			"listens":   scriptListens,
			"refused":   scriptRefused,
			"signal":    scriptSignal,
			"ended":     scriptEnded,
			"feed":      scriptFeed,
			"pages":     scriptPages,
			"post":      scriptPost,
			"http":      scriptHTTP,
			"burn":      scriptBurn,
			"dropped":   scriptDropped,
		},
	})
}

// openUp lets the engine, which is another user under root, get to dir.
func openUp(dir string) error {
	for p := dir; p != "/"; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		if st.Mode()&0o005 == 0o005 {
			continue
		}
		if err := os.Chmod(p, st.Mode()|0o005); err != nil {
			return err
		}
	}
	return nil
}

// scriptExits runs a command and wants its exit code: exits 3 wattloop status.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ee *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ee) {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d; want %d", got, want)
	}
}

// machine lays a sysfs tree of one package in the folder sys.
func scriptMachine(ts *testscript.TestScript, _ bool, _ []string) {
	for name, text := range onePackage {
		p := filepath.Join(ts.MkAbs(packageDir), name)
		ts.Check(os.MkdirAll(filepath.Dir(p), 0o755))
		ts.Check(os.WriteFile(p, []byte(text+"\n"), 0o644))
	}
}

const (
	packageDir = "sys/class/powercap/intel-rapl:0"
	capName    = "constraint_0_power_limit_uw"
)

// onePackage is a RAPL zone as Linux shows it, with 250 W before we come.
var onePackage = map[string]string{
	"name": "package-0", "enabled": "1",
	"energy_uj": "000001000000", "max_energy_range_uj": "262143328850",
	"constraint_0_name": "long_term", capName: "250000000",
	"constraint_0_max_power_uw": "250000000", "constraint_0_time_window_us": "999424",
}

// occupy NAME listens on a free port of the loopback and puts it into $NAME.
func scriptOccupy(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// patience is how long a script waits for what must come; nothing takes as long.
const patience = time.Minute

// poll asks until ok or out of patience, and says whether ok.
func poll(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// await REGEXP COMMAND... runs the command until its standard output matches.
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	re := regexp.MustCompile(`(?m)` + args[0])
	if !poll(func() bool {
		err := ts.Exec(args[1], args[2:]...) // an engine that is away may come back
		return err == nil && re.MatchString(ts.ReadFile("stdout")) != neg
	}) {
		ts.Fatalf("within %s no %s", patience, args[0])
	}
}

// holds REGEXP waits until the cap file of the machine matches.
func scriptHolds(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile(`^(?:` + args[0] + `)\n$`)
	var got string
	if !poll(func() bool {
		got = ts.ReadFile(filepath.Join(packageDir, capName))
		return re.MatchString(got)
	}) {
		ts.Fatalf("within %s the cap file did not hold %s; it holds %q", patience, args[0], got)
	}
}

// alone wants nothing of wattloop left over: no process that names this script's
// folder, no socket in it.
func scriptAlone(ts *testscript.TestScript, _ bool, _ []string) {
	work := ts.Getenv("WORK")
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), work+"/") {
			ts.Fatalf("left over: %s: %q", p, b)
		}
	}
	ts.Check(filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 && filepath.Base(path) == "wattloop.sock" {
			if c, err := net.Dial("unix", path); err == nil {
				c.Close()
				return fmt.Errorf("left over: %s, and somebody answers", path)
			}
		}
		return err
	}))
}

// case NAME copies the files of a case of testdata/cases into the script's
// folder.
func scriptCopyCase(ts *testscript.TestScript, _ bool, args []string) {
	dir, err := filepath.Abs(filepath.Join("../../testdata/cases", args[0]))
	ts.Check(err)
	ts.Check(os.CopyFS(ts.MkAbs("."), os.DirFS(dir)))
}

// settingLine is a setting in what config init prints.
var settingLine = regexp.MustCompile(`(?m)^# ([a-z_]+(?:\.[a-z_]+)*: )`)

// uncomment FROM TO makes every commented setting of FROM one of TO.
func scriptUncomment(ts *testscript.TestScript, _ bool, args []string) {
	text := settingLine.ReplaceAllString(ts.ReadFile(args[0]), "$1")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// expand FILE puts the script's variables into a file.
func scriptExpand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}
