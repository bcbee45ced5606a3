package engine

import (
	"log/slog"
	"slices"
)

// NewFailureLog is how Run logs what its steps could not do.
func NewFailureLog(log *slog.Logger) func(*Report) { return newTeller(log).failures }

// RulesOf are the rules, by their place in the set, that the numbers stand for.
func (e *Engine) RulesOf(numbers []int32) []int32 {
	var out []int32
	for _, n := range numbers {
		rule, _, _, ok := e.index.Load().find(n)
		if !ok {
			rule = -1
		}
		out = append(out, int32(rule))
	}
	slices.Sort(out)
	return out
}

// StepWhole has the next step report, log and store all, whatever it changes.
func (e *Engine) StepWhole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = false
}
