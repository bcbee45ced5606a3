package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// Ten of a kind a second, and the next one says how many were not let through.
func TestLogLimit(t *testing.T) {
	var out bytes.Buffer
	l := newLogLimit(slog.NewTextHandler(&out, nil))
	log := slog.New(l.WithAttrs([]slog.Attr{slog.String("part", "x")}).WithGroup("g"))
	at := time.Unix(1760000000, 0)
	say := func(n int, message string) {
		for i := range n {
			r := slog.NewRecord(at, slog.LevelWarn, message, 0)
			r.AddAttrs(slog.Int("i", i))
			if err := log.Handler().Handle(context.Background(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func() int { n := strings.Count(out.String(), "\n"); out.Reset(); return n }
	say(1000, "one")
	say(3, "two")
	if n := count(); n != logPerSecond+3 {
		t.Errorf("%d lines; want %d", n, logPerSecond+3)
	}
	at = at.Add(time.Second)
	say(2, "one")
	if got := out.String(); strings.Count(got, "dropped_before=990") != 1 {
		t.Errorf("%q; want the 990 that were dropped once", got)
	}
	count()
	for i := range 10 * logKinds { // what ends with an address
		say(1, fmt.Sprintf("%d from somewhere far away", i))
		say(1, fmt.Sprintf("error while reading from 10.0.0.1:%d", i))
	}
	if n := count(); n > logKinds+3*logPerSecond {
		t.Errorf("%d lines of many kinds; want at most %d", n, logKinds+3*logPerSecond)
	}
	if got, want := droppedOf(slog.New(l)), float64(990+20*logKinds); got > want || got < want-logKinds-3*logPerSecond {
		t.Errorf("%g dropped", got)
	}
}

// reliability.md section 2: a million bad requests, and a store that takes
// nothing, write at most a MiB of log at the lowest level. The million is for CI,
// which sets WATTLOOP_BOMBS.
func TestLogFlood(t *testing.T) {
	n := 20_000
	if os.Getenv("WATTLOOP_BOMBS") != "" {
		n = 1_000_000
	}
	var out bytes.Buffer
	log := newLogger("debug", &out)
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil { // from here on every append fails
		t.Fatal(err)
	}
	recv := ingest.NewReceiver(ingest.Options{Appendable: db, Queryable: db, Logger: log, RetryAfter: retryAfter})
	h := ingest.NewServer(recv.Channel("default").Live()).Handler()
	good := power(time.Now(), "worker-01", "gpu0", 1)
	bodies := [][]byte{[]byte("\x0a\xff"), []byte("evil\n\x1b[31m"), good}
	codes := map[int]int{}
	for i := range n {
		body := bodies[i%len(bodies)]
		req := httptest.NewRequest("POST", "http://localhost/v1/metrics", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/x-protobuf")
		req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		codes[w.Code]++
		if i%100 == 0 {
			log.Error("the store takes no samples", "err", errors.New("evil\n"+string(body)))
		}
	}
	t.Logf("%d requests, answers %v, %d bytes of log", n, codes, out.Len())
	if codes[400]+codes[503] != n || codes[503] < n/3 {
		t.Errorf("answers %v; want only 400 and 503", codes)
	}
	if out.Len() > 1<<20 || out.Len() == 0 {
		t.Errorf("%d bytes of log; want some and at most 1 MiB", out.Len())
	}
}
