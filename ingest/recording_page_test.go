package ingest_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/ingest"
)

// The examples of docs/recording.md are read as the page says.
func TestRecordingPage(t *testing.T) {
	page, err := os.ReadFile("../docs/recording.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	var data string
	examples := 0
	for _, block := range blocks {
		switch kind, text := block[1], block[2]; kind {
		case "json":
			data = text
			if strings.Contains(text, "attri\n") {
				data = strings.TrimSuffix(text, "\n") // cut in the middle of a line
			}
		case "hex":
			b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			data = string(b)
		case "text":
			examples++
			if diff := cmp.Diff(text, describe(data)); diff != "" {
				t.Errorf("example %d (-page +reader):\n%s", examples, diff)
			}
		}
	}
	if examples != 7 {
		t.Errorf("%d examples; want 7", examples)
	}
}

// describe is a recording as the page shows it.
func describe(data string) string {
	var b strings.Builder
	err := ingest.ReadRecording(strings.NewReader(data), "example", func(q ingest.Request) error {
		line := ""
		if q.JSON {
			line = fmt.Sprintf("line %d, ", q.Line)
		}
		fmt.Fprintf(&b, "request %d, %sbyte %d, %d bytes\n", q.Number, line, q.Offset, len(q.Body))
		return nil
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}
