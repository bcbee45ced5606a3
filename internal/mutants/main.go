// Command mutants shows that the tests bite: each file of testdata/mutants is
// a fault, put into the build by an overlay, that the tests it names must
// find. Nothing in the tree is changed.
//
// A mutant is a text file:
//
//	# why this fault matters
//	test: ./ingest TestName
//	file: ingest/reserved.go
//	-- was --
//	text that stands once in the file
//	-- is --
//	what the fault makes of it
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

type mutant struct {
	name           string
	pkg, run, file string
	was, is        string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only []string) error {
	paths, err := filepath.Glob("testdata/mutants/*.txt")
	if err != nil || len(paths) == 0 {
		return errors.Join(err, errors.New("testdata/mutants: no mutants; run from the root of the repository"))
	}
	found, survived := 0, 0
	for _, p := range paths {
		m, err := read(p)
		if err != nil {
			return err
		}
		if len(only) > 0 && !matches(m.name, only) {
			continue
		}
		switch out, err := m.try(); {
		case err != nil:
			return fmt.Errorf("%s: %w", p, err)
		case out != "":
			survived++
			fmt.Printf("ALIVE %s: %s %s passes with the fault\n%s", m.name, m.pkg, m.run, out)
		default:
			found++
			fmt.Printf("found %s by %s %s\n", m.name, m.pkg, m.run)
		}
	}
	fmt.Printf("%d mutants found, %d alive\n", found, survived)
	if survived > 0 || found == 0 {
		return errors.New("a test that cannot fail lies: make it find its mutant")
	}
	return nil
}

func matches(name string, only []string) bool {
	for _, o := range only {
		if strings.Contains(name, o) {
			return true
		}
	}
	return false
}

var head = regexp.MustCompile(`(?s)^(?:#[^\n]*\n)+test: (\S+) (\S+)\nfile: (\S+)\n-- was --\n(.*)\n-- is --\n(.*)$`)

func read(path string) (mutant, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	f := head.FindStringSubmatch(string(b))
	if f == nil {
		return mutant{}, fmt.Errorf("%s: want comment lines, test:, file:, -- was -- and -- is --", path)
	}
	name := strings.TrimSuffix(filepath.Base(path), ".txt")
	return mutant{name, f[1], f[2], f[3], f[4], strings.TrimSuffix(f[5], "\n")}, nil
}

// try runs the test with the fault. It returns the test's output when the test
// passed, which is the failure here.
func (m mutant) try() (string, error) {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), m.was); n != 1 {
		return "", fmt.Errorf("the text under -- was -- stands %d times in %s, want once: the code has moved on, and so must the mutant", n, m.file)
	}
	dir, err := os.MkdirTemp("", "wattloop-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	faulty := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(src), m.was, m.is, 1)), 0o644); err != nil {
		return "", err
	}
	abs, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{abs: faulty}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	// What does not compile proves nothing.
	if out, err := exec.Command("go", "build", "-overlay", list, m.pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the fault does not compile: %w\n%s", err, out)
	}
	cmd := exec.Command("go", "test", "-count=1", "-timeout=5m", "-v", "-overlay", list, "-run", "^"+m.run+"$", m.pkg)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return string(out), nil
	}
	if !bytes.Contains(out, []byte("--- FAIL: "+m.run)) && !bytes.Contains(out, []byte("panic: ")) {
		return "", fmt.Errorf("go test: %w\n%s", err, out)
	}
	return "", nil
}
