package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/api"
	semconv "github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/twin"
)

// telemetryOps answer in the HTTP input format out of the store.
func (p *parts) telemetryOps() api.TelemetryOps {
	return api.TelemetryOps{
		OTLP: func(ctx context.Context, node string) ([]byte, bool, error) {
			meters, err := p.nodeMeters(ctx, node)
			if err != nil || len(meters) == 0 && node != p.c.Node {
				return nil, false, err
			}
			doc, err := twin.Telemetry(meters, semconv.Strategy(p.c.Naming), p.clk.Now().UnixMilli())
			return doc, true, err
		},
		Legacy: p.legacyJSON,
	}
}

// legacyJSON is a node's power in the form that goes away.
func (p *parts) legacyJSON(_ context.Context, node string) ([]byte, bool, error) {
	if !p.legacyOn.Load() {
		return nil, false, &api.CodedError{Code: http.StatusBadRequest, Err: errors.New("format legacy is turned off by legacy_json; ask for format=otlp")}
	}
	p.legacy.Do(func() {
		p.log.Warn("the legacy JSON was asked for, which is deprecated: ask for /otlp/telemetry/{node}; said once", "node", node)
	})
	doc, known, err := twin.Legacy(node, p.eng.Report(), *p.twins.wiring.Load())
	return doc, known || node == p.c.Node, err
}

// nodeMeters are the newest samples of a node's hardware. Series of workload
// channels are none: anybody may have written them.
func (p *parts) nodeMeters(ctx context.Context, node string) ([]twin.Meter, error) {
	strategy := semconv.Strategy(p.c.Naming)
	nodeLabel := semconv.Attribute{Name: "k8s.node.name"}
	for _, a := range semconv.Attributes() {
		if a.Name == nodeLabel.Name {
			nodeLabel = a
		}
	}
	now := p.clk.Now().UnixMilli()
	equal := func(name, value string) *labels.Matcher { return labels.MustNewMatcher(labels.MatchEqual, name, value) }
	byLabel := equal(nodeLabel.Stored(strategy), node)
	// By the node's own label, and by the target_info of who lacks it (S0-164).
	of := [][]*labels.Matcher{{byLabel}}
	infos, err := p.db.Newest(ctx, now-infoLasts, now, equal("__name__", "target_info"), byLabel, equal("channel", ""))
	if err != nil {
		return nil, err
	}
	for _, s := range infos {
		of = append(of, []*labels.Matcher{equal("job", s.Metric.Get("job")), equal("instance", s.Metric.Get("instance")), equal(byLabel.Name, "")})
	}
	var out []twin.Meter
	for _, m := range twin.Served() {
		for _, who := range of {
			found, err := p.db.Newest(ctx, now-twin.FreshAtMost, now, append(who, equal("__name__", m.Stored(strategy)), equal("channel", ""))...)
			if err != nil {
				return nil, err
			}
			for _, s := range found {
				out = append(out, twin.Meter{Labels: s.Metric, T: s.T, Interval: s.Interval, V: s.V})
			}
		}
	}
	return out, nil
}

// infoLasts is how old a target_info may be and still say whose a target is, in
// milliseconds: as long as one answers in a query.
const infoLasts = 5 * 60_000
