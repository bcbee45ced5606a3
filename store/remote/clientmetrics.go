package remote

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type clientMetrics struct {
	questions *prometheus.CounterVec
	bytes     prometheus.Counter
	seconds   prometheus.Histogram
}

func newClientMetrics(reg prometheus.Registerer) *clientMetrics {
	m := &clientMetrics{
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_remote_reads_total",
			Help: "Questions for samples to storage.remote, by result: ok or failed.",
		}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wattloop_remote_read_bytes_total",
			Help: "Bytes of the answers of storage.remote, inflated.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "wattloop_remote_read_seconds",
			Help:    "How long a question to storage.remote took.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.questions.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.questions, m.bytes, m.seconds)
	}
	return m
}

func (c *Client) received(n int) {
	c.m.bytes.Add(float64(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.Bytes += uint64(n)
}

// took notes how a question ended. The first failure of a row is logged, and its
// end, for who looks closely: the rules that fail of it are told by who runs them.
func (c *Client) took(d time.Duration, err error) {
	c.m.seconds.Observe(d.Seconds())
	c.mu.Lock()
	was, failed := c.st.Answering, c.st.Failures > 0
	first := c.st.Answers == 0 && !failed
	c.st.Answering, c.st.Way = err == nil, wayName(c.way.Load())
	if err == nil {
		c.st.Answers++
	} else {
		c.st.Failures++
		c.st.Error, c.st.ErrorAt = clip(err.Error()), c.o.Clock()
	}
	text := c.st.Error
	c.mu.Unlock()
	switch {
	case err != nil:
		c.m.questions.WithLabelValues("failed").Inc()
		if was || first {
			c.log.Debug("the remote engine does not answer", "remote", c.base.String(), "error", text)
		}
	default:
		c.m.questions.WithLabelValues("ok").Inc()
		level := slog.LevelInfo
		if failed {
			level = slog.LevelDebug
		}
		if !was {
			c.log.Log(context.Background(), level, "the remote engine answers", "remote", c.base.String(), "by", wayName(c.way.Load()))
		}
	}
}
