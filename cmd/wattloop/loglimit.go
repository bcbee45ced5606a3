package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/grpclog"
)

// The log's bounds. A kind of message is its level and how it begins: the words
// are constants in the program, but what a library logs may end with an address.
const (
	logPerSecond = 10
	logWords     = 24  // bytes that tell kinds apart
	logKinds     = 256 // beyond them all others are one kind
)

// logLimit lets at most ten messages of a kind a second through. The next one that
// is let through says how many were not.
type logLimit struct {
	slog.Handler
	kinds *logCounts
}

type logCounts struct {
	mu      sync.Mutex
	by      map[string]*logKind
	dropped atomic.Int64 // in all
}

type logKind struct {
	second  int64 // Unix
	n       int   // in that second
	dropped int64 // since the last one that was let through
}

func newLogLimit(h slog.Handler) *logLimit {
	return &logLimit{h, &logCounts{by: map[string]*logKind{}}}
}

// Handle goes by the record's own time.
func (l *logLimit) Handle(ctx context.Context, r slog.Record) error {
	dropped, pass := l.kinds.count(r.Level.String()+" "+r.Message[:min(len(r.Message), logWords)], r.Time)
	if !pass {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("dropped_before", dropped))
	}
	return l.Handler.Handle(ctx, r)
}

func (c *logCounts) count(kind string, at time.Time) (dropped int64, pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.by[kind]
	if k == nil {
		if len(c.by) >= logKinds {
			kind = ""
		}
		if k = c.by[kind]; k == nil {
			k = &logKind{}
			c.by[kind] = k
		}
	}
	if s := at.Unix(); s != k.second {
		k.second, k.n = s, 0
	}
	if k.n++; k.n > logPerSecond {
		k.dropped++
		c.dropped.Add(1)
		return 0, false
	}
	dropped, k.dropped = k.dropped, 0
	return dropped, true
}

// WithAttrs and WithGroup keep the counts.
func (l *logLimit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logLimit{l.Handler.WithAttrs(attrs), l.kinds}
}

func (l *logLimit) WithGroup(name string) slog.Handler {
	return &logLimit{l.Handler.WithGroup(name), l.kinds}
}

// droppedOf is how many messages the limit of a logger has kept back.
func droppedOf(log *slog.Logger) float64 {
	if l, ok := log.Handler().(*logLimit); ok {
		return float64(l.kinds.dropped.Load())
	}
	return 0
}

// quietGRPC puts what the gRPC library calls errors under the log's bounds; it
// writes them to standard error itself otherwise.
func quietGRPC(log *slog.Logger) {
	w := slog.NewLogLogger(log.With("part", "grpc").Handler(), slog.LevelWarn).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
}
