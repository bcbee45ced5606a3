package ingest

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the receiver's own.
type metrics struct {
	points    *prometheus.CounterVec
	exemplars *prometheus.CounterVec
	lag       *prometheus.HistogramVec
	lagging   *prometheus.GaugeVec
	onward    *prometheus.CounterVec
	records   *prometheus.CounterVec
	windows   *prometheus.CounterVec
	state     stateMetrics
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		points: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_points_total",
			Help: "OTLP metric points by channel, by what became of them (accepted, folded, rejected), and why.",
		}, []string{"channel", "result", "reason"}),
		exemplars: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_exemplars_total",
			Help: "Exemplars of OTLP metric points by channel and by what became of them.",
		}, []string{"channel", "result"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "wattloop_ingest_lag_seconds",
			Help:    "Age of the newest accepted point of each request when it was stored.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
		}, []string{"channel"}),
		lagging: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wattloop_ingest_lagging",
			Help: "1 while most requests of the channel come later than a tenth of its export interval, else 0.",
		}, []string{"channel"}),
		onward: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_onward_total",
			Help: "OTLP requests handed onward by channel and signal: queued for the upstream, refused since its queue has no_room, or failed.",
		}, []string{"channel", "signal", "result"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_records_total",
			Help: "OTLP spans and log records by channel and signal, by what became of them (accepted for the upstream, rejected), and why.",
		}, []string{"channel", "signal", "result", "reason"}),
	}
	m.windows, m.state = newWindows(reg), newStateMetrics(reg)
	if reg != nil {
		reg.MustRegister(m.points, m.exemplars, m.lag, m.lagging, m.onward, m.records)
	}
	return m
}

// channelMetrics are the same for one channel, without a look-up by name a
// request.
type channelMetrics struct {
	accepted, folded prometheus.Counter
	rejected         [numReasons]prometheus.Counter
	exemplars        [numFates]prometheus.Counter
	lag              prometheus.Observer
	windows          [numWindows]prometheus.Counter
	windowCounts     [numWindows]atomic.Uint64 // the same, to be read
	lags             lagGauge
	last             atomic.Int64 // the lag observed last, in milliseconds plus 1; 0 before the first
}

func (m *metrics) channel(name string) *channelMetrics {
	cm := &channelMetrics{
		accepted: m.points.WithLabelValues(name, "accepted", ""),
		folded:   m.points.WithLabelValues(name, "folded", ""),
		lag:      m.lag.WithLabelValues(name),
	}
	cm.lags.flag = m.lagging.WithLabelValues(name)
	for what := range numWindows {
		cm.windows[what] = m.windows.WithLabelValues(name, windowWords[what])
	}
	for why := fine + 1; why < numReasons; why++ {
		cm.rejected[why] = m.points.WithLabelValues(name, "rejected", why.String())
	}
	for i, word := range fateWords {
		cm.exemplars[i] = m.exemplars.WithLabelValues(name, word)
	}
	return cm
}

// remove takes a channel out of all that is counted by channel.
func (m *metrics) remove(name string) {
	l := prometheus.Labels{"channel": name}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.points, m.exemplars, m.lag, m.lagging, m.onward, m.records, m.windows} {
		v.DeletePartialMatch(l)
	}
}

// count adds one request. The lag is read off its newest accepted point, since
// that is what bounds the age of a rate (S0-162).
func (cm *channelMetrics) count(t *tally, now, newest int64) {
	cm.accepted.Add(float64(t.accepted))
	cm.folded.Add(float64(t.folded))
	for _, why := range t.order {
		cm.rejected[why].Add(float64(t.rejected[why]))
	}
	for what, n := range t.windows {
		if n != 0 {
			cm.windows[what].Add(float64(n))
			cm.windowCounts[what].Add(uint64(n))
		}
	}
	cm.late(now, newest)
}

// late observes the lag; math.MinInt64 is none.
func (cm *channelMetrics) late(now, newest int64) {
	if newest != math.MinInt64 {
		// A clock that is behind the sender's is no negative lag.
		late := max(0, now-newest)
		cm.lag.Observe(float64(late) / 1000)
		cm.last.Store(late + 1)
	}
}

func (cm *channelMetrics) countExemplars(x *exemplars) {
	for i, n := range x.counts {
		cm.exemplars[i].Add(float64(n))
	}
}
