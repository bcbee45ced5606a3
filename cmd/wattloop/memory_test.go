package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	f := func(name string, want int64, files ...string) {
		t.Helper()
		root := t.TempDir()
		for i := 0; i < len(files); i += 2 {
			p := filepath.Join(root, files[i])
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(files[i+1]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(root); got != want {
			t.Errorf("%s: %d; want %d", name, got, want)
		}
	}
	const self, v2, v1 = "proc/self/cgroup", "sys/fs/cgroup", "sys/fs/cgroup/memory"
	f("no control groups", 0)
	f("version 2", 512<<20, self, "0::/system.slice/wattloop.service\n", v2+"/system.slice/wattloop.service/memory.max", "536870912\n")
	f("version 2, none", 0, self, "0::/a\n", v2+"/a/memory.max", "max\n")
	f("version 2, the parent's is lower", 100, self, "0::/a/b\n", v2+"/a/b/memory.max", "200\n", v2+"/a/memory.max", "100\n")
	f("version 2, in a container", 100, self, "0::/\n", v2+"/memory.max", "100\n")
	f("version 1", 300, self, "5:cpu:/c\n4:memory:/a\n0::/\n", v1+"/a/memory.limit_in_bytes", "300\n", v1+"/memory.limit_in_bytes", "9223372036854771712\n")
	f("version 1, the host's path in a container", 300, self, "4:memory:/docker/0123\n", v1+"/memory.limit_in_bytes", "300\n")
	f("both", 200, self, "4:memory:/a\n0::/a\n", v1+"/a/memory.limit_in_bytes", "300\n", v2+"/a/memory.max", "200\n")
	f("another controller", 0, self, "4:memory_like:/a\n", v1+"/a/memory.limit_in_bytes", "300\n")
	f("nonsense", 0, self, "::\nmemory\n\n4:memory:../../..\n", v1+"/memory.limit_in_bytes", "-\n")
}

func TestMostSeries(t *testing.T) {
	f := func(limit int64, want int) {
		t.Helper()
		if got := mostSeries(limit); got != want {
			t.Errorf("%d bytes: %d; want %d", limit, got, want)
		}
	}
	f(0, 200_000)
	f(64<<30, 200_000)
	f(410<<20, 410<<20/4/bytesPerSeries)
	f(1<<20, 1000)
}
