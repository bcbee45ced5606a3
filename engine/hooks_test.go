package engine

import "log/slog"

// NewFailureLog is how Run logs what its steps could not do.
func NewFailureLog(log *slog.Logger) func(*Report) { return newTeller(log).failures }
