package main

import (
	"fmt"
	"testing"

	"github.com/wattloop/wattloop/rules"
)

// What no place in a file has caused is logged without line and column.
func TestTellNamesAPlaceOnlyWhereThereIsOne(t *testing.T) {
	f := func(m rules.Message, want string) {
		t.Helper()
		tell(func(_ string, args ...any) {
			if got := fmt.Sprint(args[1]); got != want {
				t.Errorf("at=%s; want %s", got, want)
			}
		}, []rules.Message{m})
	}
	f(rules.Message{File: "settings"}, "settings")
	f(rules.Message{File: "a.yaml", Line: 3, Col: 5}, "a.yaml:3:5")
}
