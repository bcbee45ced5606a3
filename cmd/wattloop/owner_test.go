package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever can write the warden's file decides about the hardware.
func TestWardenFileIsRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "warden.yaml")
	for _, in := range []struct {
		mode os.FileMode
		uid  int
		ok   bool
	}{{0o644, 0, true}, {0o600, 0, true}, {0o664, 0, false}, {0o646, 0, false}, {0o644, 65534, false}} {
		if err := os.WriteFile(path, []byte("actuation: {enabled: true}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, in.uid, -1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, in.mode); err != nil {
			t.Fatal(err)
		}
		c := defaultConfig()
		err := c.readFile(path, true, true, os.LookupEnv)
		if (err == nil) != in.ok {
			t.Errorf("mode %o, owner %d: %v; want it taken %t", in.mode, in.uid, err, in.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%v: no way out", err)
		}
		if err == nil && !c.Enabled {
			t.Error("the file was not read")
		}
	}
}
