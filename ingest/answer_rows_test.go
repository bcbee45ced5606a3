package ingest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Errors find their row also when they are wrapped, and the receiver's own word
// wins over what is inside it.
func TestAnswerTo(t *testing.T) {
	full := errors.New("disk is nearly full")
	r := NewReceiver(Options{RetryAfter: func(err error) time.Duration {
		if errors.Is(err, full) {
			return 30 * time.Second
		}
		return 0
	}})
	f := func(err error, want answer) {
		t.Helper()
		if got := r.answerTo(fmt.Errorf("otlp: %w", err)); got != want {
			t.Errorf("%v: %+v; want %+v", err, got, want)
		}
		if word := wordOf(want.code); word == "internal" && want != answerInternal {
			t.Errorf("%v has no word of its own", want.code)
		}
	}
	f(&DecodeError{errors.New("bad")}, answerUndecodable)
	f(&DecodeError{context.Canceled}, answerUndecodable)
	f(&UnavailableError{errors.New("no space")}, answerUnavailable)
	f(&UnavailableError{context.DeadlineExceeded}, answerUnavailable)
	f(tooLarge(maxBody, ""), answerTooLarge)
	f(&UnavailableError{fmt.Errorf("store: %w", full)}, answer{answerUnavailable.code, 503, 30 * time.Second})
	f(errBusy, answerUnavailable)
	f(&limitError{refusedPoints, "over"}, answerOverLimit)
	f(errSlow, answerSlow)
	f(context.DeadlineExceeded, answerSlow)
	f(context.Canceled, answerCancelled)
	f(errors.New("something else"), answerInternal)
}
