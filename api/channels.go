package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ChannelOps are what the API does with channels. An error is a *CodedError, or
// counts as internal.
type ChannelOps struct {
	List func() []Channel
	// Activate begins an activation; began is false when the very same one was
	// live already.
	Activate func(ctx context.Context, name string, r ChannelRequest) (c Channel, began bool, err error)
	End      func(name string) (Channel, error)
	// Prove makes a question for the addresses of a live channel.
	Prove func(name string) (ChannelProof, error)
}

// Identity is what the platform says of the actor that a workload channel serves.
// An empty field is not known.
type Identity struct {
	ActorUID          string `json:"actor_uid,omitempty"`
	ActorName         string `json:"actor_name,omitempty"`
	Atespace          string `json:"atespace,omitempty"`
	TemplateNamespace string `json:"template_namespace,omitempty"`
	TemplateName      string `json:"template_name,omitempty"`
	Container         string `json:"container,omitempty"`
	PodName           string `json:"pod_name,omitempty"`
	PodUID            string `json:"pod_uid,omitempty"`
	Node              string `json:"node,omitempty"`
	ServiceName       string `json:"service_name,omitempty"`
	ServiceNamespace  string `json:"service_namespace,omitempty"`
}

// ChannelRequest is the body of PUT /api/v1/channels/{name}. What defines the
// channel (Class to Limits) is needed only while there is none of that name.
type ChannelRequest struct {
	Identity Identity       `json:"identity"`
	At       *time.Time     `json:"at,omitempty"`    // begin of the activation; default now
	Since    *time.Time     `json:"since,omitempty"` // from when the actor's work is its own
	Class    string         `json:"class,omitempty"`
	Listen   *ChannelListen `json:"listen,omitempty"`
	Mode     string         `json:"mode,omitempty"` // of unix sockets, in octal
	Group    string         `json:"group,omitempty"`
	Nodes    []string       `json:"nodes,omitempty"`
	Gauge    string         `json:"gauge,omitempty"`
	Limits   *ChannelLimits `json:"limits,omitempty"`
}

// ChannelListen is one address, written as a string, or one for gRPC and one for
// HTTP, written as an object.
type ChannelListen struct {
	GRPC string `json:"grpc,omitempty"`
	HTTP string `json:"http,omitempty"`
}

// UnmarshalJSON reads both forms.
func (l *ChannelListen) UnmarshalJSON(b []byte) error {
	type plain ChannelListen
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &l.GRPC)
	}
	return strictJSON(b, (*plain)(l))
}

// ChannelLimits bound a channel; 0 is the default of that limit.
type ChannelLimits struct {
	Points    float64 `json:"points,omitempty"`     // a second
	Bytes     float64 `json:"bytes,omitempty"`      // a second, decompressed
	NewSeries float64 `json:"new_series,omitempty"` // a minute
	Streams   int     `json:"streams,omitempty"`
	Conns     int     `json:"conns,omitempty"`
	Series    int     `json:"series,omitempty"`
}

// ChannelProof is a question for the address of a channel and its right answer.
type ChannelProof struct {
	Path      string   `json:"path"`   // to GET from each address
	Answer    string   `json:"answer"` // the body, if it is the channel that answers
	Addresses []string `json:"addresses"`
}

// Channels answers GET /api/v1/channels.
type Channels struct {
	Channels []Channel `json:"channels"`
}

func (a *api) listChannels(w http.ResponseWriter, _ *http.Request) {
	all := a.Channels.List()
	if all == nil {
		all = []Channel{}
	}
	writeJSON(w, http.StatusOK, Channels{all})
}

func (a *api) getChannel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	for _, c := range a.Channels.List() {
		if c.Name == name {
			writeJSON(w, http.StatusOK, c)
			return
		}
	}
	failCoded(w, http.StatusNotFound, fmt.Errorf("channel %s: there is none of that name", name))
}

// maxChannelRequest bounds the body of a PUT.
const maxChannelRequest = 64 << 10

func (a *api) putChannel(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxChannelRequest)
	if !ok {
		return
	}
	if !json.Valid(body) {
		failCoded(w, http.StatusBadRequest, errors.New(`the request is no JSON; send an object like {"identity": {"actor_uid": "..."}}`))
		return
	}
	var req ChannelRequest
	if err := strictJSON(body, &req); err != nil {
		failCoded(w, http.StatusUnprocessableEntity, err)
		return
	}
	c, began, err := a.Channels.Activate(r.Context(), r.PathValue("name"), req)
	if err != nil {
		failCoded(w, codeOf(err), err)
		return
	}
	code := http.StatusOK
	if began {
		code = http.StatusCreated
	}
	writeJSON(w, code, c)
}

func (a *api) deleteChannel(w http.ResponseWriter, r *http.Request) {
	c, err := a.Channels.End(r.PathValue("name"))
	if err != nil {
		failCoded(w, codeOf(err), err)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

func (a *api) proveChannel(w http.ResponseWriter, r *http.Request) {
	p, err := a.Channels.Prove(r.PathValue("name"))
	if err != nil {
		failCoded(w, codeOf(err), err)
		return
	}
	writeJSON(w, http.StatusOK, p)
}
