package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+)( bad)?\n(.*?)^```$")

// TestDocsExamples loads every YAML example of docs/rules.md over the shipped
// rules, and compares the messages that the page shows with those of the bad
// example above them.
func TestDocsExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	good, bad, said := 0, 0, ""
	for _, block := range fence.FindAllStringSubmatch(string(page), -1) {
		language, wrong, text := block[1], block[2] != "", block[3]
		switch {
		case language == "yaml":
			sources := append(shipped(t), Source{"60-local.yaml", []byte(text)})
			_, messages := Load(sources, Settings{})
			said = printed(messages)
			if wrong {
				bad++
				if !HasErrors(messages) {
					t.Errorf("no error in\n%s", text)
				}
				continue
			}
			good++
			if said != "" {
				t.Errorf("the page has\n%s\nwhich says\n%s", text, said)
			}
		case language == "text" && said != "":
			if text != said {
				t.Errorf("the page shows\n%s\nwant\n%s", text, said)
			}
			said = ""
		}
	}
	if good < 5 || bad < 1 {
		t.Errorf("found %d good and %d bad examples", good, bad)
	}
}

// Every key of the language stands on the page, and every key that comes later.
func TestDocsNameEveryKey(t *testing.T) {
	data, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var check func(s *shape)
	check = func(s *shape) {
		for key, child := range s.keys {
			if !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/rules.md does not name `%s`", key)
			}
			check(child)
		}
		for key := range s.later {
			if !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/rules.md does not name `%s`, which comes later", key)
			}
		}
		if s.any != nil {
			check(s.any)
		}
	}
	check(language)
}
