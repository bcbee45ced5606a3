package ingest

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Errors find their row also when they are wrapped, and the receiver's own word
// wins over what is inside it.
func TestAnswerTo(t *testing.T) {
	f := func(err error, want answer) {
		t.Helper()
		if got := answerTo(fmt.Errorf("otlp: %w", err)); got != want {
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
	f(errBusy, answerBusy)
	f(errSlow, answerSlow)
	f(context.DeadlineExceeded, answerSlow)
	f(context.Canceled, answerCancelled)
	f(errors.New("something else"), answerInternal)
}
