// Package sysfstest makes sysfs trees in temporary folders for tests: from a list
// of files, a case's tree.json, or a packed tree of the corpus. It is imported by
// tests alone.
package sysfstest

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/sysfs"
)

// Tree is a tree.json: the files of one machine at some moments, its links, and
// how its files fail.
type Tree struct {
	FS        sysfs.FS
	Snapshots []Snapshot

	links map[string]string
}

// Snapshot is the contents of all files at T seconds.
type Snapshot struct {
	T     float64           `json:"t"`
	Files map[string]string `json:"files"`
}

// Load lays the first snapshot of the tree.json below a temporary folder. The
// tree's faults are in FS.Faulty.
func Load(t testing.TB, file string) *Tree {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Snapshots []Snapshot        `json:"snapshots"`
		Links     map[string]string `json:"links"`
		OnWrite   map[string]string `json:"on_write"`
		OnRead    map[string]string `json:"on_read"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	tree := &Tree{FS: sysfs.New(t.TempDir()), Snapshots: doc.Snapshots, links: doc.Links}
	if tree.FS.Faulty, err = sysfs.NewFaulty(doc.OnRead, doc.OnWrite); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	tree.Lay(t, 0)
	return tree
}

// Lay writes the files of snapshot n over the tree as the kernel would change
// them: in place, so that descriptors stay good.
func (tree *Tree) Lay(t testing.TB, n int) {
	t.Helper()
	for path, contents := range tree.Snapshots[n].Files {
		Write(t, tree.FS, path, contents)
	}
	for path, target := range tree.links {
		Link(t, tree.FS, path, target)
	}
}

// Of lays a tree of the files in a temporary folder, each with a newline at its
// end.
func Of(t testing.TB, files map[string]string) sysfs.FS {
	t.Helper()
	f := sysfs.New(t.TempDir())
	for path, contents := range files {
		Write(t, f, path, contents)
	}
	return f
}

// Link makes a symbolic link at a path of a tree, which may lead nowhere. One that
// is there stays.
func Link(t testing.TB, f sysfs.FS, path, target string) {
	t.Helper()
	link := filepath.Join(f.Root, path)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

// Write makes or replaces one file of a tree, with a newline at its end. It
// stands for the hardware, and so no fault stops it.
func Write(t testing.TB, f sysfs.FS, path, contents string) {
	t.Helper()
	file := filepath.Join(f.Root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(contents+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Read returns the contents of one file without its newline, past all faults.
func Read(t testing.TB, f sysfs.FS, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Root, path))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "\n")
}

// Dump returns every file of a tree byte for byte, by its path, past all
// faults. A file that is linked counts once, where it lies.
func Dump(t testing.TB, f sysfs.FS) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(f.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(f.Root, path)
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
