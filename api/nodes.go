package api

import (
	"fmt"
	"net/http"

	"github.com/wattloop/wattloop/twin"
)

// NodeOps are what the API knows of nodes. An error is a *CodedError, or counts as
// internal.
type NodeOps struct {
	Twin     func(node string) (doc twin.Twin, known bool)
	Hardware func(node string) (doc twin.Hardware, known bool)
	// PutSpec takes a NodeTwin, or its spec, as the node's target; DeleteSpec
	// withdraws it.
	PutSpec    func(node string, body []byte) (twin.Twin, error)
	DeleteSpec func(node string) (twin.Twin, error)
}

func (a *api) getTwin(w http.ResponseWriter, r *http.Request) {
	doc, known := a.Nodes.Twin(r.PathValue("node"))
	if !known {
		failCoded(w, http.StatusNotFound, fmt.Errorf("node %s: node_power has no answer for it, and it is not this machine", r.PathValue("node")))
		return
	}
	writeJSON(w, http.StatusOK, doc)
}

func (a *api) getHardware(w http.ResponseWriter, r *http.Request) {
	doc, known := a.Nodes.Hardware(r.PathValue("node"))
	if !known {
		failCoded(w, http.StatusNotFound, fmt.Errorf("node %s is not this machine; ask the wattloop that runs there", r.PathValue("node")))
		return
	}
	writeJSON(w, http.StatusOK, doc)
}

func (a *api) putSpec(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, twin.MaxSpec)
	if !ok {
		return
	}
	doc, err := a.Nodes.PutSpec(r.PathValue("node"), body)
	answerTwin(w, doc, err)
}

func (a *api) deleteSpec(w http.ResponseWriter, r *http.Request) {
	doc, err := a.Nodes.DeleteSpec(r.PathValue("node"))
	answerTwin(w, doc, err)
}

func answerTwin(w http.ResponseWriter, doc twin.Twin, err error) {
	if err != nil {
		failCoded(w, codeOf(err), err)
		return
	}
	writeJSON(w, http.StatusOK, doc)
}
