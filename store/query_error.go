package store

import (
	"context"
	"errors"

	"github.com/prometheus/prometheus/promql"
)

// The kinds of a QueryError, in the words of Prometheus's HTTP API, with the
// status that it answers each with.
const (
	BadData     = "bad_data"    // the query or its times; 400
	Execution   = "execution"   // it failed while it ran; 422
	Canceled    = "canceled"    // the caller went away; 499
	Timeout     = "timeout"     // 503
	Unavailable = "unavailable" // the store is closed or being reopened, or what is beside it does not answer; 503
	Internal    = "internal"    // the store could not be read; 500
)

// QueryError is why a query gave no answer.
type QueryError struct {
	Kind string // one of the constants above
	Err  error
}

func (e *QueryError) Error() string { return e.Err.Error() }

// Unwrap gives the cause to errors.Is and errors.As.
func (e *QueryError) Unwrap() error { return e.Err }

func badData(err error) error { return &QueryError{BadData, err} }

// failed sorts an error of the engine as Prometheus does.
func failed(err error) error {
	var own *QueryError
	if errors.As(err, &own) {
		return own
	}
	var (
		canceled promql.ErrQueryCanceled
		timeout  promql.ErrQueryTimeout
		storage  promql.ErrStorage
	)
	switch {
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return &QueryError{Canceled, err}
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return &QueryError{Timeout, err}
	case errors.Is(err, ErrClosed), errors.Is(err, ErrFrozen), errors.Is(err, ErrBeside):
		return &QueryError{Unavailable, err}
	case errors.As(err, &storage):
		return &QueryError{Internal, err}
	}
	return &QueryError{Execution, err}
}
