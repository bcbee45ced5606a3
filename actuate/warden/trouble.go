package warden

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// troubles logs what fails again and again on change alone: when it begins,
// when its cause is another, and when it is over.
type troubles struct {
	mu sync.Mutex
	on map[string]string // what is wrong, and its cause
}

// note takes in that what has failed with err, or, with nil, that it works.
func (t *troubles) note(log *slog.Logger, level slog.Level, what string, err error, args ...any) {
	t.mu.Lock()
	last, was := t.on[what]
	now := ""
	if err == nil {
		delete(t.on, what)
	} else {
		now = root(err)
		if t.on == nil {
			t.on = map[string]string{}
		}
		t.on[what] = now
	}
	t.mu.Unlock()
	switch {
	case err == nil && was:
		log.Info("over: "+what, args...)
	case err != nil && (!was || now != last):
		log.Log(context.Background(), level, what, append(args, "err", err)...)
	}
}

// forgetTrouble has the next failure logged again, whatever its cause.
func (t *troubles) forgetTrouble(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.on, what)
}

// root is the innermost cause: the texts around it name values that differ each
// time.
func root(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
