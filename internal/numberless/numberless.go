// Package numberless tells messages apart by more than their numbers, so that an
// error which counts something is logged once and not anew at each count.
package numberless

import "strings"

// Of is the message without its digits.
func Of(message string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, message)
}
