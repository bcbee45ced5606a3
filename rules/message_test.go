package rules

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you accept it")

// TestGoldenMessages prints every message for the files of each archive, all of
// one run. A file is named by its place in the archive.
func TestGoldenMessages(t *testing.T) {
	archives, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var sources []Source
			var want *txtar.File
			for i, f := range archive.Files {
				if f.Name == "want" {
					want = &archive.Files[i]
					continue
				}
				sources = append(sources, Source{f.Name, f.Data})
			}
			set, messages := Load(sources, Settings{})
			if (set == nil) != HasErrors(messages) {
				t.Errorf("Load gives set %v beside errors %v", set != nil, HasErrors(messages))
			}
			got := printed(messages)
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("messages differ (-want +got):\n%s", diff)
			}
		})
	}
}

func printed(messages []Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.String() + "\n")
	}
	return b.String()
}
