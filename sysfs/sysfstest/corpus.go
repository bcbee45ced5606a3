package sysfstest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/sysfs"
)

// Corpus unpacks an archive of other people's trees, named below the corpus'
// folder sysfs, and returns the tree whose folder in the archive is dir. The
// corpus is WATTLOOP_CORPUS, or ../shared/corpus beside the repository; a test
// is skipped where it is missing, since nothing of it is in the repository.
func Corpus(t testing.TB, archive, dir string) sysfs.FS {
	t.Helper()
	folder := os.Getenv("WATTLOOP_CORPUS")
	if folder == "" {
		folder = filepath.Join(repository(t), "..", "shared", "corpus")
	}
	file, err := os.Open(filepath.Join(folder, "sysfs", archive))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no corpus at %s: set WATTLOOP_CORPUS to read real trees", folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	root := t.TempDir()
	if err := unpack(file, root); err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	return sysfs.New(filepath.Join(root, dir))
}

// repository is the folder of go.mod above the test's.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

func unpack(packed io.Reader, dir string) error {
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Clean(head.Name), "/")
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		switch head.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(head.Linkname, name)
		case tar.TypeReg:
			// The kernel's attributes are packed at the length of a page.
			var contents []byte
			if contents, err = io.ReadAll(archive); err == nil {
				err = root.WriteFile(name, contents, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
}
