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
	"sync"
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
	var all []mutant
	for _, p := range paths {
		m, err := read(p)
		if err != nil {
			return err
		}
		if len(only) == 0 || matches(m.name, only) {
			all = append(all, m)
		}
	}
	return try(all)
}

// try runs two mutants at a time: much of each is one linker.
func try(all []mutant) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found, survived := 0, 0
	var errs []error
	places := make(chan struct{}, 2)
	for _, m := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			out, err := m.try()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			case out != "":
				survived++
				fmt.Printf("ALIVE %s: %s %s passes with the fault\n%s", m.name, m.pkg, m.run, out)
			default:
				found++
				fmt.Printf("found %s by %s %s\n", m.name, m.pkg, m.run)
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d mutants found, %d alive\n", found, survived)
	if survived > 0 || found == 0 {
		errs = append(errs, errors.New("a test that cannot fail lies: make it find its mutant"))
	}
	return errors.Join(errs...)
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
	cmd := exec.Command("go", "test", "-count=1", "-timeout=5m", "-vet=off", "-v", "-overlay", list, "-run", "^"+m.run+"$", m.pkg)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return string(out), nil
	}
	// What does not compile proves nothing.
	if !bytes.Contains(out, []byte("--- FAIL: "+m.run)) && !bytes.Contains(out, []byte("panic: ")) {
		return "", fmt.Errorf("go test: %w\n%s", err, out)
	}
	return "", nil
}
