package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// CodedError is an error with its HTTP status: 404, 409 or 422.
type CodedError struct {
	Code int
	Err  error
}

func (e *CodedError) Error() string { return e.Err.Error() }
func (e *CodedError) Unwrap() error { return e.Err }

func codeOf(err error) int {
	var e *CodedError
	if errors.As(err, &e) {
		return e.Code
	}
	return http.StatusInternalServerError
}

// failCoded answers with the words of Prometheus's API.
func failCoded(w http.ResponseWriter, code int, err error) {
	word, ok := map[int]string{http.StatusNotFound: "not_found", http.StatusConflict: "conflict", http.StatusInternalServerError: "internal"}[code]
	if !ok {
		word = "bad_data"
	}
	writeJSON(w, code, promAnswer{Status: "error", ErrorType: word, Error: err.Error()})
}

// readBody reads a body of at most so many bytes; without ok the answer is given.
func readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		failCoded(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", most))
	case err != nil:
		failCoded(w, http.StatusBadRequest, fmt.Errorf("the request could not be read: %w", err))
	default:
		return body, true
	}
	return nil, false
}
