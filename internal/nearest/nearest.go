// Package nearest finds the word that a mistyped one probably means, for the "did
// you mean" of messages. It knows no words of its own.
package nearest

// Of is the candidate that is nearest to a mistyped word, or "" when none is near:
// at most one edit in three letters, one in a word of two, and none in a single
// letter, to which all others are near. The first of several that are as near
// wins; the word itself is none.
func Of(word string, candidates []string) string {
	best, at := "", max(len(word)/3, min(1, len(word)-1))+1
	for _, c := range candidates {
		if d := Distance(word, c); d > 0 && d < at {
			best, at = c, d
		}
	}
	return best
}

// Distance counts the letters (bytes) to insert, delete, replace or swap with
// their neighbour (relase, realese) that lead from a to b.
func Distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			step := 1
			if a[i-1] == b[j-1] {
				step = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+step)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
