package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/host"
	"github.com/wattloop/wattloop/ingest/listen"
	"github.com/wattloop/wattloop/ingest/pull"
	"github.com/wattloop/wattloop/ingest/relay"
	"github.com/wattloop/wattloop/ingest/scrape"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/twin"

	"github.com/wattloop/wattloop/actuate/rapl"
)

// devices is what this binary can touch, on one screen.
func devices(fs sysfs.FS) ([]actuate.Device, error) {
	var all []actuate.Device
	for _, open := range []func(sysfs.FS) ([]actuate.Device, error){
		rapl.Open,
	} {
		ds, err := open(fs)
		if err != nil {
			return nil, err
		}
		all = append(all, ds...)
	}
	return all, nil
}

// parts is everything inside the engine's process.
type parts struct {
	c       *config
	clk     clock
	log     *slog.Logger
	db      *store.DB
	recv    *ingest.Receiver
	otlp    *ingest.Server
	eng     *engine.Engine
	gov     *actuate.Governor
	host    *host.Source
	scraper *scrape.Manager
	puller  *pull.Manager
	relay   *relay.Relay // nil without an upstream
	twins   *twins
	inputs  map[string]string // the line of each, as it was told last
	entry
	beyond // this machine: remote.go

	doors   *listen.Manager // of the channels that are neither default nor host
	own     []string        // addresses of the default channel
	opening opening

	reread     func() (*config, error) // for a reload
	reloading  sync.Mutex
	rulesError atomic.Pointer[string] // why the last reload was refused

	legacyOn atomic.Bool // legacy_json
	legacy   sync.Once   // the warning that the legacy JSON goes away
	healing  healing
	doubts   doubts
	lossMu   sync.Mutex
	losses   []api.Loss
}

// build wires the engine's process by name. Whatever it opened it closes again
// on an error.
func build(c *config, clk clock, log *slog.Logger, set *rules.Set, link actuate.Link, meters []actuate.Meter, in entry) (*parts, error) {
	durability, err := store.ParseDurability(c.Durability)
	if err != nil {
		return nil, withCode(exitFound, fmt.Errorf("storage.durability: %w", err))
	}
	p := &parts{c: c, clk: clk, log: log, entry: in}
	p.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "wattloop_log_dropped_total", Help: "Messages of the engine kept out of the log: more than 10 of a kind a second.",
	}, func() float64 { return droppedOf(log) }))
	beside, err := p.openRemote()
	if err != nil {
		return nil, withCode(exitFound, err)
	}
	p.db, err = store.Open(store.Options{
		Beside: beside,
		Path:   c.StoragePath, RetentionTime: c.RetentionTime, RetentionBytes: int64(c.RetentionSize),
		OutOfOrder: c.OutOfOrder, Durability: durability, Logger: log.With("part", "store"), Registerer: p.reg, Clock: clk.Now,
	})
	if err != nil {
		return nil, withCode(exitCannot, err)
	}
	p.gov = &actuate.Governor{Link: link, Pace: pace()}
	queries := twin.NewQueries(p.reg, log.With("part", "twin"))
	p.eng = engine.New(engine.Options{
		Rules: set, Query: queryFunc(p.db.Instant), Recall: queryFunc(p.db.InstantOwn), Interval: p.db.Interval, Store: p.db, Governor: p.gov,
		Clock: clk.Now, Speed: clk.speed, Log: log.With("part", "engine"), Registerer: p.reg,
		Evaluated: queries.Evaluated, Unread: p.unread, Cause: remoteCause,
	})
	p.reg.MustRegister(twin.NewFacility(p.eng.Report), &p.doubts)
	onward, err := p.onward(durability)
	if err != nil {
		return nil, withCode(exitCannot, errors.Join(err, p.db.Close()))
	}
	if err := p.openWriter(c); err != nil {
		return nil, withCode(exitCannot, errors.Join(err, p.closeRelay(), p.db.Close()))
	}
	elsewhere, watch, err := p.elsewhere(durability)
	if err != nil {
		return nil, withCode(exitCannot, errors.Join(err, p.closeRelay(), p.closeWriter(), p.db.Close()))
	}
	p.recv, err = ingest.Open(ingest.Options{
		Elsewhere: elsewhere, Watch: watch,
		StateDir: c.sumsPath(), StateSync: durability == store.DurabilityFsync,
		Appendable: p.db, Sync: p.db.Sync, Clock: clk.Now, OutOfOrder: c.OutOfOrder, Onward: onward,
		RetryAfter: retryAfter, MaxSeries: mostSeries(c.memoryLimit),
		Naming: ingest.Naming(c.Naming), Promote: c.Promote, AttributePrefix: c.AttrPrefix,
		Guard: in.guard,
		After: in.before, Logger: log.With("part", "ingest"),
	})
	if err != nil {
		return nil, withCode(exitCannot, errors.Join(err, p.closeRelay(), p.db.Close()))
	}
	if why := p.recv.StateDamage(); why != "" {
		now := clk.Now()
		p.lost(api.Loss{From: now, To: now, Why: "running sums were damaged, a retry of what was sent before may have counted twice: " + why})
	}
	p.otlp = ingest.NewServer(p.recv.Channel(defaultChannel).Live())
	if err := p.defineChannels(); err != nil {
		return nil, withCode(exitFound, errors.Join(err, p.close()))
	}
	p.legacyOn.Store(c.LegacyJSON)
	p.scraper = p.newScraper(log)
	p.puller = p.newPuller(log)
	if c.HostEnabled {
		if p.host, err = hostSource(c, clk, p.recv, meters, log); err != nil {
			return nil, withCode(exitCannot, errors.Join(err, p.close()))
		}
	}
	if err := p.openTwins(set); err != nil {
		return nil, withCode(exitCannot, errors.Join(err, p.close()))
	}
	return p, nil
}

// close gives back what build opened, once nothing is sent any more.
func (p *parts) close() error {
	return errors.Join(p.closeRelay(), p.recv.Close(), p.closeWriter(), p.db.Close())
}

// channelsPath is where it is kept which channels are live.
func (c *config) channelsPath() string { return filepath.Join(c.StatePath, "channels") }

// sumsPath is where the receiver keeps its running sums.
func (c *config) sumsPath() string { return filepath.Join(c.StatePath, "accumulate") }

// queryFunc is an instant query of the store in the rules' own types.
func queryFunc(instant func(context.Context, string, int64) ([]store.Sample, error)) rules.QueryFunc {
	return func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
		got, err := instant(ctx, expr, ts)
		if err != nil {
			return nil, err
		}
		out := make([]rules.Sample, len(got))
		for i, s := range got {
			out[i] = rules.Sample{Metric: s.Metric, T: s.T, V: s.V}
		}
		return out, nil
	}
}

// apiHandler serves the parts over HTTP.
func (p *parts) apiHandler(facts func() api.Facts, reload func(bool) error) http.Handler {
	return api.Handler(api.Options{
		Report: p.eng.Report, Facts: facts, Clock: p.clk.Now, Reload: reload,
		Ready: func() error { return refuses(p.db.Stats()) },
		Query: func(ctx context.Context, expr string, ts int64, timeout time.Duration) (api.Answer, error) {
			return answer(p.db.QueryJSON(ctx, expr, ts, timeout))
		},
		QueryRange: func(ctx context.Context, expr string, start, end int64, step, timeout time.Duration) (api.Answer, error) {
			return answer(p.db.QueryRangeJSON(ctx, expr, start, end, step, timeout))
		},
		QueryExemplars: func(ctx context.Context, expr string, start, end int64) (api.Answer, error) {
			data, err := p.db.ExemplarsJSON(ctx, expr, start, end)
			return answer(store.Answer{Data: data}, err)
		},
		Metrics: promhttp.HandlerFor(p.reg, promhttp.HandlerOpts{}),
		Ingest:  p.otlp.Handler(), RefuseIngest: p.otlp.Refuse,
		Channels:  p.channelOps(),
		Nodes:     p.twins.ops(),
		Telemetry: p.telemetryOps(),
		Door:      access.Door{Guard: p.guard, Open: access.Read},
	})
}

// answer is the store's answer in the API's types.
func answer(a store.Answer, err error) (api.Answer, error) {
	var q *store.QueryError
	if errors.As(err, &q) {
		err = &api.QueryError{Type: q.Kind, Err: err}
	}
	return api.Answer{Data: a.Data, Warnings: a.Warnings, Infos: a.Infos}, err
}

// newLogger logs to w at the level of the configuration.
func newLogger(level string, w io.Writer) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(newLogLimit(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})))
}
