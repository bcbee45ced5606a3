package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/ingest"
)

// metrics are the relay's own. Each request that Forward was given is counted
// once as queued or refused, and once more as sent or dropped when it has left
// the queue.
type metrics struct {
	requests *prometheus.CounterVec
	retries  *prometheus.CounterVec
	rejected *prometheus.CounterVec
	lost     *prometheus.CounterVec
	bytes    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer, name string) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_" + name + "_requests_total",
			Help: "Requests on their way to the upstream, by what became of them: queued or refused, then sent or dropped.",
		}, []string{"plane", "signal", "result", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_" + name + "_retries_total",
			Help: "Attempts that failed and are repeated, by the gRPC code.",
		}, []string{"plane", "reason"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_" + name + "_rejected_total",
			Help: "Points, spans and log records of sent requests that the upstream rejected.",
		}, []string{"plane", "signal"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_" + name + "_queue_lost_bytes_total",
			Help: "Bytes of the queue that could not be read back: torn by a crash, corrupt, or unreadable.",
		}, []string{"plane", "reason"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wattloop_" + name + "_queue_bytes",
			Help: "Bytes that wait for the upstream.",
		}, []string{"plane"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.retries, m.rejected, m.lost, m.bytes)
	}
	return m
}

// begin makes the series of a plane that stand for the first loss, at 0: an
// increase from nothing is none to whoever watches.
func (m *metrics) begin(p ingest.Plane) {
	for _, s := range signals[1:] {
		for _, result := range []string{"queued", "sent"} {
			m.requests.WithLabelValues(string(p), string(s), result, "")
		}
		m.requests.WithLabelValues(string(p), string(s), "refused", "full")
		m.rejected.WithLabelValues(string(p), string(s))
	}
	m.retries.WithLabelValues(string(p), "unavailable")
	for _, reason := range []string{"torn", "corrupt", "unreadable"} {
		m.lost.WithLabelValues(string(p), reason)
	}
	m.bytes.WithLabelValues(string(p))
}
