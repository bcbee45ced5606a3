package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/wattloop/wattloop/internal/nearest"
)

// TelemetryOps give the telemetry of one node as documents. known is false for a
// node of which there is nothing. An error is a *CodedError, or counts as internal.
type TelemetryOps struct {
	OTLP   func(ctx context.Context, node string) (doc []byte, known bool, err error)
	Legacy func(ctx context.Context, node string) (doc []byte, known bool, err error)
}

// The words for the query parameter format.
const (
	formatOTLP   = "otlp"
	formatLegacy = "legacy"
)

func (a *api) getOTLP(w http.ResponseWriter, r *http.Request) { a.telemetry(w, r, a.Telemetry.OTLP) }

func (a *api) getTelemetry(w http.ResponseWriter, r *http.Request) {
	form := formatOTLP
	if q := r.URL.Query(); q.Has("format") {
		form = q.Get("format")
	}
	switch form {
	case formatOTLP:
		a.telemetry(w, r, a.Telemetry.OTLP)
	case formatLegacy:
		a.telemetry(w, r, a.Telemetry.Legacy)
	default:
		hint := ""
		if word := nearest.Of(form, []string{formatOTLP, formatLegacy}); word != "" {
			hint = "; did you mean " + word + "?"
		}
		failCoded(w, http.StatusBadRequest, fmt.Errorf("format %.40q: want %s or %s%s", form, formatOTLP, formatLegacy, hint))
	}
}

func (a *api) telemetry(w http.ResponseWriter, r *http.Request, of func(context.Context, string) ([]byte, bool, error)) {
	node := r.PathValue("node")
	doc, known, err := of(r.Context(), node)
	switch {
	case err != nil:
		failCoded(w, codeOf(err), err)
	case !known:
		failCoded(w, http.StatusNotFound, fmt.Errorf("node %s: no series of its hardware is stored, and it is not this machine", node))
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Write(doc)
	}
}
