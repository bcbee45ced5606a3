package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/actuate"
)

// metrics are the engine's own, named in docs/metrics.md.
type metrics struct {
	eval     *prometheus.HistogramVec
	reaction prometheus.Histogram
	outcome  *prometheus.CounterVec
	reload   prometheus.Gauge

	last map[subject]string // result and reason that were counted last
}

// subject is one control on one device.
type subject struct{ control, key, device string }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		eval: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "wattloop_eval_seconds", Help: "Time that one evaluation of a rule took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14),
		}, []string{"rule"}),
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "wattloop_reaction_seconds", Help: "From the commit of a sample to the read-back of the setting that it caused.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		outcome: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_outcomes_total", Help: "Outcomes of intents, counted when the result or its reason changes and at every write.",
		}, []string{"action", "result", "reason"}),
		reload: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wattloop_config_last_reload_successful", Help: "1 when the last load of the rule files was taken, 0 when it was refused.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.eval, m.reaction, m.outcome, m.reload)
	}
	return m
}

func (m *metrics) evaluated(rule string, took time.Duration) {
	m.eval.WithLabelValues(rule).Observe(took.Seconds())
}

// forget drops the series of a rule that is gone.
func (m *metrics) forget(rule string) { m.eval.DeleteLabelValues(rule) }

func (m *metrics) reacted(took time.Duration) { m.reaction.Observe(took.Seconds()) }

func (m *metrics) reloaded(ok bool) {
	m.reload.Set(0)
	if ok {
		m.reload.Set(1)
	}
}

func (m *metrics) outcomes(all []actuate.Outcome) {
	now := make(map[subject]string, len(all))
	for _, o := range all {
		s, word := subject{o.Control, o.Key, o.Device}, o.Result+" "+o.Reason
		if o.Wrote || m.last[s] != word {
			m.outcome.WithLabelValues(o.Action, o.Result, o.Reason).Inc()
		}
		now[s] = word
	}
	m.last = now
}
