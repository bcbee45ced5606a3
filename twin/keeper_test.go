package twin

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type keeperRig struct {
	*Keeper
	t   *testing.T
	log bytes.Buffer
}

func newKeeper(t *testing.T, dir, file string) *keeperRig {
	t.Helper()
	r := &keeperRig{t: t}
	r.Keeper = &Keeper{Node: "w1", Dir: dir, Log: slog.New(slog.NewTextHandler(&r.log, nil))}
	if err := r.Open(file); err != nil {
		t.Fatal(err)
	}
	return r
}

// want polls as often as a change takes, and checks the cap of the packages (0 is
// no target) and why.
func (r *keeperRig) want(watts float64, why string) {
	r.t.Helper()
	for range 2 {
		r.Poll()
	}
	spec, said := r.Now()
	if got := spec.Target(PathCPU, 0).Watts; got != watts || why == "" && said != "" || !strings.Contains(said, why) {
		r.t.Errorf("%g W, %q; want %g W, %q", got, said, watts, why)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

const at120, at150 = "nodeName: w1\ncpu: {packagePowerCapWatts: 120}\n", "nodeName: w1\ncpu: {packagePowerCapWatts: 150}\n"

// S0-187, S0-188: the file is followed; an error leaves the target that stands, and
// only the file's end withdraws it.
func TestKeeperWatches(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "spec.yaml")
	k := newKeeper(t, filepath.Join(dir, "nodes"), file)
	k.want(0, "")
	write(t, file, at120)
	k.Poll()
	if s, _ := k.Now(); s != nil {
		t.Error("taken at the first look")
	}
	k.want(120, "")
	write(t, file, "nodeName: w1\ncpu: {packagePowerCapWats: 1}\n")
	k.want(120, file+`:2:7: error: cpu: unknown key "packagePowerCapWats"`)
	write(t, file, "")
	k.want(120, file+": error: the document is empty")
	if err := os.WriteFile(file+"x", []byte(at150), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file+"x", 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+"x", file); err != nil {
		t.Fatal(err)
	}
	k.want(120, "everybody may write it (mode 0666): chmod o-w "+file)
	write(t, file, at150)
	k.want(150, "")
	if _, err := k.Put([]byte(at120)); !errors.Is(err, ErrWatched) || !strings.Contains(err.Error(), file+" (twin.spec)") {
		t.Errorf("Put: %v", err)
	}
	if err := k.Withdraw(); !errors.Is(err, ErrWatched) {
		t.Errorf("Withdraw: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	k.want(0, "")
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	k.want(0, "is no plain file")
	n := strings.Count(k.log.String(), "target refused")
	k.want(0, "is no plain file")
	if got := strings.Count(k.log.String(), "target refused"); got != n {
		t.Error("said again though nothing changed")
	}
	if !strings.Contains(k.log.String(), "the target before it goes on") || !strings.Contains(k.log.String(), `msg="target withdrawn"`) {
		t.Error(k.log.String())
	}
}

// What is put outlives the process, and ends when it is withdrawn.
func TestKeeperPut(t *testing.T) {
	dir := t.TempDir()
	k := newKeeper(t, dir, "")
	if _, err := k.Put([]byte(at120)); err != nil {
		t.Fatal(err)
	}
	k.want(120, "")
	var e *SpecError
	if _, err := k.Put([]byte("nodeName: w2")); !errors.As(err, &e) || e.Col != 11 {
		t.Errorf("%v", err)
	}
	k.want(120, "")
	k = newKeeper(t, dir, "")
	k.want(120, "")
	if err := k.Withdraw(); err != nil {
		t.Fatal(err)
	}
	if err := k.Withdraw(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	k.want(0, "")
	newKeeper(t, dir, "").want(0, "")

	// A file in the configuration forgets what was put, and so does a reload.
	if _, err := k.Put([]byte(at150)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "spec.yaml")
	write(t, file, at120)
	if err := k.Watch(file); err != nil {
		t.Fatal(err)
	}
	k.want(120, "")
	if err := k.Watch(""); err != nil {
		t.Fatal(err)
	}
	k.want(0, "")
	newKeeper(t, dir, "").want(0, "")

	// What was kept and is in error is no target, and is said.
	write(t, filepath.Join(dir, "w1", "spec.json"), `{"nodeName": "w2"}`)
	newKeeper(t, dir, "").want(0, `spec.json:1:14: error: nodeName: "w2" is another node`)
}

func TestKeeperOfANodeWithoutAFolder(t *testing.T) {
	for _, node := range []string{"..", "a/b", "", ".a", "a.", strings.Repeat("a", 254), "a\n", "ä"} {
		k := &Keeper{Node: node, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
		if err := k.Open(""); err != nil {
			t.Errorf("%q: %v", node, err)
		}
		if _, err := k.Put([]byte(`{"nodeName": "` + node + `"}`)); err == nil {
			t.Errorf("%q: put", node)
		}
		if left, _ := os.ReadDir(k.Dir); len(left) > 0 {
			t.Errorf("%q: %v", node, left)
		}
	}
}
