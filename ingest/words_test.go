package ingest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A limit is said in the digits that it was written in.
func TestWordsOfALimit(t *testing.T) {
	r := NewReceiver(Options{Clock: func() time.Time { return time.Unix(1e9, 0) }})
	c, err := r.AddChannel(ChannelOptions{Name: "w", Class: Workload, Limits: Limits{Points: 1e7}})
	if err != nil {
		t.Fatal(err)
	}
	c.spendBytes(1 << 30)
	if err := c.enter(1); err == nil || err.Error() != "otlp: channel w is over its limit of 4194304 bytes a second: send again later" {
		t.Error(err)
	}
	c.spendPoints(1e9)
	if err := c.enter(1); err == nil || err.Error() != "otlp: channel w is over its limit of 10000000 points a second: send again later" {
		t.Error(err)
	}
}

// Who posts to a wrong path is told all the right ones.
func TestWordsOfAWrongPath(t *testing.T) {
	c, err := NewReceiver(Options{}).AddChannel(ChannelOptions{Name: "w", Class: Workload})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Activate(Identity{ActorUID: "a"}, time.Unix(1e9, 0), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	h := NewServer(a).Handler()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/v1/metric", nil))
	for _, g := range signals {
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), g.path) {
			t.Errorf("%d %s; want 404 and %s", w.Code, w.Body, g.path)
		}
	}
}
