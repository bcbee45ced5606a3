package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	promremote "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"go.uber.org/goleak"

	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/store/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is a full hour, so that subqueries meet the samples.
const epoch = int64(1_760_000_400_000)

func second(s float64) int64 { return epoch + int64(s*1000) }

// prometheus is a server made of Prometheus's own TSDB, engine and remote read
// handler.
type prometheus struct {
	*httptest.Server
	db     *tsdb.DB
	engine *promql.Engine
	asked  atomic.Int64
	// read says whether there is remote read, victoria whether staleness markers
	// are shown as VictoriaMetrics does.
	read, victoria bool
	// before, unless nil, answers in place of everything else where it says so.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newPrometheus(t testing.TB) *prometheus {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = time.Hour.Milliseconds()
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{db: db, read: true, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	})}
	read := promremote.NewReadHandler(nil, nil, db, func() promconfig.Config { return promconfig.Config{} }, 1e9, 10, 4096)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/read", func(w http.ResponseWriter, r *http.Request) {
		if !p.read {
			http.NotFound(w, r)
			return
		}
		read.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /api/v1/query", p.query)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if p.before == nil || !p.before(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// query answers as Prometheus's HTTP API does.
func (p *prometheus) query(w http.ResponseWriter, r *http.Request) {
	expr := r.FormValue("query")
	seconds, err := strconv.ParseFloat(r.FormValue("time"), 64)
	ts := int64(math.Round(seconds * 1000))
	var result []any
	if p.victoria && err == nil && strings.HasSuffix(expr, "]") {
		w.Header().Set("X-Server-Hostname", "vm")
		result, err = p.raw(expr, ts)
	} else if err == nil {
		result, err = p.evaluate(expr, ts)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		json.NewEncoder(w).Encode(map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "any", "result": result}})
}

func (p *prometheus) evaluate(expr string, ts int64) ([]any, error) {
	q, err := p.engine.NewInstantQuery(context.Background(), p.db, nil, expr, timestamp.Time(ts))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		return nil, res.Err
	}
	all := []any{}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			all = append(all, map[string]any{"metric": s.Metric, "value": wirePoint(s.T, s.F)})
		}
	case promql.Matrix:
		for _, s := range v {
			values := []any{}
			for _, f := range s.Floats {
				values = append(values, wirePoint(f.T, f.F))
			}
			one := map[string]any{"metric": s.Metric, "values": values}
			if len(s.Histograms) > 0 {
				one["histograms"] = []any{[]any{0, map[string]any{}}}
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// raw is a range with every sample in it, markers as NaN.
func (p *prometheus) raw(expr string, ts int64) ([]any, error) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	m := tree.(*parser.MatrixSelector)
	q, err := p.db.Querier(ts-m.Range.Milliseconds()+1, ts)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	all := []any{}
	set := q.Select(context.Background(), true, nil, m.VectorSelector.(*parser.VectorSelector).LabelMatchers...)
	for set.Next() {
		values := []any{}
		it := set.At().Iterator(nil)
		for it.Next() != 0 {
			values = append(values, wirePoint(it.At()))
		}
		all = append(all, map[string]any{"metric": set.At().Labels(), "values": values})
	}
	return all, set.Err()
}

func wirePoint(t int64, v float64) []any {
	return []any{float64(t) / 1000, strconv.FormatFloat(v, 'f', -1, 64)}
}

// stale is what ends a series.
var stale = math.Float64frombits(value.StaleNaN)

// sample is one sample of a test, at a second after epoch.
type sample struct {
	at float64
	v  float64
	h  *histogram.Histogram
}

func floats(from, to, every, perSecond float64) (out []sample) {
	for at := from; at <= to; at += every {
		out = append(out, sample{at: at, v: perSecond * at})
	}
	return out
}

// put writes samples of a series, each in a commit of its own where they go back
// in time.
func put(t testing.TB, db storage.Appendable, ls labels.Labels, samples ...sample) {
	t.Helper()
	app := db.Appender(context.Background())
	for _, s := range samples {
		var err error
		if s.h != nil {
			_, err = app.AppendHistogram(0, ls, second(s.at), s.h, nil)
		} else {
			_, err = app.Append(0, ls, second(s.at), s.v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, o store.Options) *store.DB {
	t.Helper()
	o.Path, o.Durability = t.TempDir(), "os"
	db, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := remote.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// beside opens an empty store that reads the server.
func beside(t testing.TB, o remote.Options, server string) (*store.DB, *remote.Client) {
	t.Helper()
	o.URL = mustURL(t, server)
	c := remote.New(o)
	return openStore(t, store.Options{Beside: store.Beside{Rules: c.Steps(), People: c.Queryable()}}), c
}

// same is two answers that agree in every bit.
func same(got, want []store.Sample) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d series; want %d: %v, %v", len(got), len(want), got, want)
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			if labels.Equal(g.Metric, w.Metric) {
				found = g.T == w.T && math.Float64bits(g.V) == math.Float64bits(w.V)
				if !found {
					return fmt.Errorf("%v; want %v", g, w)
				}
			}
		}
		if !found {
			return fmt.Errorf("no %v in %v", w, got)
		}
	}
	return nil
}
