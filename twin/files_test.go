package twin

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[nodes]") // no pattern
	at := time.Unix(1760000000, 0).UTC()
	doc := func(node string, watts float64, seconds int) Twin {
		d := Twin{Metadata: Metadata{node}}
		ts := at.Add(time.Duration(seconds) * time.Second)
		d.Status.LastUpdated, d.Status.ControlStatus.CPU.TS = &ts, &ts
		d.Status.PowerMeasurement = PowerMeasurement{MeasuredNodePowerW: &watts, AgeSeconds: num(float64(seconds))}
		return d
	}
	hw := Hardware{Metadata: Metadata{"w1"}}
	f := &Files{Dir: dir}
	if err := f.Begin(); err != nil {
		t.Fatal(err)
	}
	put := func(all ...Twin) {
		t.Helper()
		if err := f.Write(all, hw); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(name string) os.FileInfo {
		t.Helper()
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	has := func(name, text string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), text) {
			t.Errorf("%s: %s, %v; want %s", name, b, err, text)
		}
	}
	put(doc("w1", 350, 0), doc("../evil", 1, 0), doc("w2", 100, 0))
	has("w1/twin.json", `"measuredNodePowerW": 350`)
	has("w1/hardware.json", `"name": "w1"`)
	if all, _ := os.ReadDir(filepath.Dir(dir)); len(all) != 1 {
		t.Errorf("outside of the folder: %v", all)
	}
	first, hardware := stat("w1/twin.json"), stat("w1/hardware.json")
	put(doc("w1", 350, 5), doc("w2", 100, 5)) // only times have changed
	if !os.SameFile(first, stat("w1/twin.json")) || !os.SameFile(hardware, stat("w1/hardware.json")) {
		t.Error("written though nothing has changed")
	}
	put(doc("w1", 351, 10))
	has("w1/twin.json", `"measuredNodePowerW": 351`)
	if os.SameFile(first, stat("w1/twin.json")) || !os.SameFile(hardware, stat("w1/hardware.json")) {
		t.Error("want a new file of the twin alone")
	}
	if _, err := os.Stat(filepath.Join(dir, "w2")); !os.IsNotExist(err) {
		t.Errorf("a node that is gone: %v", err)
	}

	// S0-90: the next process does not pass on what this one read, nor the half of
	// it that it was writing.
	write(t, filepath.Join(dir, "w1", "spec.json"), "{}")
	write(t, filepath.Join(dir, "w1", "twin.json.tmp"), "{")
	f = &Files{Dir: dir}
	if err := f.Begin(); err != nil {
		t.Fatal(err)
	}
	left, _ := fs.Glob(os.DirFS(dir), "*/*")
	if len(left) != 2 { // hardware.json and spec.json
		t.Errorf("left: %v", left)
	}
	put()
	has("w1/spec.json", "{}")
	if left, _ := fs.Glob(os.DirFS(dir), "*/*.tmp"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	f.Dir = "/dev/null/x"
	if err := f.Write([]Twin{doc("w1", 1, 0)}, hw); err == nil || !strings.HasPrefix(err.Error(), "twin: ") {
		t.Errorf("%v", err)
	}
}
