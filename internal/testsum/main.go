// Command testsum reads "go test -json" and prints one line a package, the
// output of what failed, what was skipped and why, and a closing count.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type counts struct{ passed, failed, skipped int }

func main() {
	var n counts
	output := map[string][]string{}
	broken := false
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // what the toolchain itself says, such as a build error
			continue
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			output[id] = append(output[id], e.Output)
		case "build-fail":
			broken = true
			print(output[id])
		case "pass", "fail", "skip":
			n.add(e, output[id])
			broken = broken || e.Action == "fail"
			delete(output, id)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", n.passed, n.failed, n.skipped)
	if broken || n.failed > 0 || in.Err() != nil {
		os.Exit(1)
	}
}

func (n *counts) add(e event, out []string) {
	if e.Test == "" {
		if e.Action != "skip" { // a package without tests
			fmt.Printf("%-5s %s  %.1f s\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package, e.Elapsed)
		}
		if e.Action == "fail" {
			print(out)
		}
		return
	}
	switch e.Action {
	case "pass":
		n.passed++
	case "fail":
		n.failed++
		print(out)
	case "skip":
		n.skipped++
		fmt.Printf("skip  %s: %s\n", e.Test, reason(out))
	}
}

// reason is the last line that a test logged before it was skipped.
func reason(out []string) string {
	for i := len(out) - 1; i >= 0; i-- {
		s := strings.TrimSpace(out[i])
		if s != "" && !strings.HasPrefix(s, "---") && !strings.HasPrefix(s, "===") {
			if _, why, ok := strings.Cut(s, ": "); ok {
				return why
			}
			return s
		}
	}
	return "no reason given"
}

func print(lines []string) {
	for _, l := range lines {
		fmt.Print(l)
	}
}
