package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// remoteWay is one server that wattloop reads instead of its own store.
type remoteWay struct {
	peer int    // in allPeers
	otlp string // of storage.remote_otlp
	// apart is how far a reading may lie from the embedded one, relative: 0 is not
	// at all.
	apart float64
	start func(ctx context.Context, dir, bin string) (*target, error)
}

// remoteWays are the servers with what a wattloop before them needs.
func remoteWays() []remoteWay {
	return []remoteWay{
		{0, "/api/v1/otlp/v1/metrics", 0, func(ctx context.Context, dir, bin string) (*target, error) {
			conf, data := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "data")
			if err := os.WriteFile(conf, []byte(prometheusConfig), 0o644); err != nil {
				return nil, err
			}
			return startPeer(ctx, dir, data, "/api/v1/otlp/v1/metrics", "/-/ready", bin, "--config.file="+conf, "--storage.tsdb.path="+data,
				"--web.enable-otlp-receiver", "--web.enable-remote-write-receiver", "--log.level=warn", "--web.listen-address=")
		}},
		{1, "/opentelemetry/v1/metrics", 1e-9, func(ctx context.Context, dir, bin string) (*target, error) {
			data := filepath.Join(dir, "data")
			return startPeer(ctx, dir, data, "/opentelemetry/v1/metrics", "/health", bin, "-storageDataPath="+data,
				"-loggerLevel=WARN", "-opentelemetry.usePrometheusNaming", "-httpListenAddr=")
		}},
	}
}

// remoteReadings sends the same requests to a wattloop with its own store and to
// one before each real server, and compares what the presets read: at one instant
// bit by bit, and as the engines themselves have it.
func remoteReadings(r run) error {
	if r.alone {
		return nil
	}
	ways := remoteWays()
	var bases []string
	dir := filepath.Join(r.dir, "remote")
	own, err := startAt(r, filepath.Join(dir, "embedded"))
	if err != nil {
		return err
	}
	defer own.stop()
	servers := []*server{own}
	for i, w := range ways {
		p := allPeers[w.peer]
		bin, err := p.build(r)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, p.bin)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		t, err := w.start(r.ctx, at, bin)
		if err != nil {
			return err
		}
		defer t.stop()
		base := strings.TrimSuffix(t.url, w.otlp)
		bases = append(bases, base)
		s, err := startAt(r, filepath.Join(dir, "before"+strconv.Itoa(i)),
			"--storage.remote="+base, "--storage.remote-otlp="+w.otlp, "--storage.remote-write="+base+"/api/v1/write")
		if err != nil {
			return err
		}
		defer s.stop()
		servers = append(servers, s)
	}
	until, err := feedAll(r.ctx, servers)
	if err != nil {
		return err
	}
	for i, w := range ways {
		if err := compare(r.ctx, own, servers[i+1], w, until); err != nil {
			return fmt.Errorf("%s: %w", allPeers[w.peer].bin, err)
		}
		if err := written(r.ctx, bases[i], allPeers[w.peer].bin); err != nil {
			return fmt.Errorf("%s: %w", allPeers[w.peer].bin, err)
		}
	}
	return nil
}

// written waits until the readings of the engine before the server are in it, by
// remote write.
func written(ctx context.Context, base, name string) error {
	s := server{web: strings.TrimPrefix(base, "http://")}
	for range 100 {
		// VictoriaMetrics shows the last half minute only to who asks for a later instant.
		got, _, err := s.values(ctx, "count(wattloop_reading)", time.Now().Add(time.Minute))
		if err != nil {
			return err
		}
		if n := got[""]; n >= 40 {
			figure("remote_write_series_"+strings.ReplaceAll(name, "-", "_"), n, "series", "readings of the engine that the server has by remote write")
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no reading arrived by remote write")
}

func startAt(r run, dir string, args ...string) (*server, error) {
	if err := os.MkdirAll(filepath.Join(dir, "sys"), 0o755); err != nil {
		return nil, err
	}
	return startServer(r.ctx, r.bin, dir, args...)
}

// feedAll sends ten minutes of twenty nodes to each, one node of which began late
// and one of which ended early, and says when the last point is.
func feedAll(ctx context.Context, servers []*server) (time.Time, error) {
	const nodes, ticks, every = 20, 120, 5 * time.Second
	end := time.Now().Truncate(time.Second)
	var all []*node
	for i := range nodes {
		all = append(all, newNode(fmt.Sprintf("node-%02d", i), 8, 20))
	}
	for tick := range ticks {
		t := end.Add(-time.Duration(ticks-1-tick) * every)
		for i, n := range all {
			if i == 0 && tick < ticks-3 || i == 1 && tick > ticks-20 {
				continue
			}
			wire := n.request(t.Add(time.Duration(i)*37*time.Millisecond-time.Second), every, func(id string) float64 {
				return 100 + 10*float64(i) + 7.25*float64(len(id)) + math.Sin(float64(tick))
			})
			for _, s := range servers {
				if err := s.send(ctx, wire); err != nil {
					return end, err
				}
			}
		}
	}
	return end, nil
}

// presetQueries are what the preset reads, and what judges a reading, in the words
// that run.
var presetQueries = []string{
	`sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (covered_rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`,
	`sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type="cpu"}[5m])))`,
	`min by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (timestamp(hw_energy_joules_total)))`,
	`count by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type="cpu"}))`,
}

// compare waits until the server has all that was sent, and holds its answers
// against those of the embedded store.
func compare(ctx context.Context, own, other *server, w remoteWay, until time.Time) error {
	name := allPeers[w.peer].bin
	values, worst := 0, 0.0
	var took []time.Duration
	for _, back := range []time.Duration{0, 17 * time.Second, 2 * time.Minute, 5 * time.Minute} {
		for _, q := range presetQueries {
			want, _, err := own.values(ctx, q, until.Add(-back))
			if err != nil {
				return err
			}
			var got map[string]float64
			for range 100 { // until the last request has arrived and is shown
				var d time.Duration
				if got, d, err = other.values(ctx, q, until.Add(-back)); err != nil {
					return err
				}
				took = append(took, d)
				if len(got) == len(want) && apart(got, want) <= w.apart {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if len(got) != len(want) || len(want) == 0 {
				return fmt.Errorf("%s at %s before the end: %d answers, embedded %d", q, back, len(got), len(want))
			}
			if d := apart(got, want); d > w.apart {
				return fmt.Errorf("%s at %s before the end: %g apart: %v, embedded %v", q, back, d, got, want)
			} else {
				worst = max(worst, d)
			}
			values += len(want)
		}
	}
	readings, err := sameReadings(ctx, own, other)
	if err != nil {
		return err
	}
	figure("remote_values_equal_"+strings.ReplaceAll(name, "-", "_"), float64(values), "values",
		fmt.Sprintf("preset queries over 20 nodes at 4 instants, at most %.1g apart from the embedded store; and %d live readings", worst, readings))
	figure("remote_query_ms_p50_"+strings.ReplaceAll(name, "-", "_"), ms(percentile(took, 50)), "ms", "one preset query of 20 nodes with 10 components, 5 minutes at 5 s")
	return nil
}

// apart is the greatest relative difference; infinite where a key is missing.
func apart(got, want map[string]float64) float64 {
	worst := 0.0
	for k, w := range want {
		g, ok := got[k]
		if !ok {
			return math.Inf(1)
		}
		if g != w {
			worst = max(worst, math.Abs(g-w)/max(math.Abs(w), 1e-300))
		}
	}
	return worst
}

// values asks for a query at an instant: by node, and how long it took.
func (s *server) values(ctx context.Context, query string, at time.Time) (map[string]float64, time.Duration, error) {
	var a struct {
		Error string `json:"error"`
		Data  struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	began := time.Now()
	form := url.Values{"query": {query}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}}
	if err := s.get(ctx, "/api/v1/query?"+form.Encode(), &a); err != nil {
		return nil, 0, err
	}
	if a.Error != "" {
		return nil, 0, fmt.Errorf("%s: %s", query, a.Error)
	}
	took := time.Since(began)
	out := map[string]float64{}
	for _, r := range a.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, 0, err
		}
		out[r.Metric["k8s_node_name"]] = v
	}
	return out, took, nil
}

// sameReadings compares the readings of both engines, once they are of one kind.
func sameReadings(ctx context.Context, own, other *server) (int, error) {
	var why error
	for range 40 {
		want, err := own.readings(ctx)
		if err != nil {
			return 0, err
		}
		got, err := other.readings(ctx)
		if err != nil {
			return 0, err
		}
		// The engines step at instants of their own, over which a mean moves a little.
		if d := apart(got, want); len(got) == len(want) && len(want) >= 40 && d < 1e-2 {
			return len(want), nil
		} else {
			why = fmt.Errorf("%d readings, embedded %d, %g apart", len(got), len(want), d)
		}
		time.Sleep(500 * time.Millisecond)
	}
	return 0, why
}

// readings are the values that a status shows, by name and node.
func (s *server) readings(ctx context.Context) (map[string]float64, error) {
	var st struct {
		Readings []struct {
			Name  string            `json:"name"`
			Key   map[string]string `json:"key"`
			Value *float64          `json:"value"`
		} `json:"readings"`
	}
	if err := s.get(ctx, "/api/v1/status/wattloop", &st); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, r := range st.Readings {
		if r.Value != nil {
			out[r.Name+" "+r.Key["k8s_node_name"]] = *r.Value
		}
	}
	return out, nil
}

func (s *server) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.web+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
