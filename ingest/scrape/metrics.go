package scrape

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of all targets.
type metrics struct {
	scrapes *prometheus.CounterVec
	samples *prometheus.CounterVec
	targets *prometheus.GaugeVec

	mu   sync.Mutex
	uses map[string]int // targets by URL, which is their label
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		scrapes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_scrape_scrapes_total",
			Help: "Scrapes by target and result: ok, failed (no page, or one that cannot be read), or unstored (the store took none of it).",
		}, []string{"target", "result"}),
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_scrape_samples_total",
			Help: "Samples of pages that were read, by target, by what became of them (stored, refused, blank), and why.",
		}, []string{"target", "result", "reason"}),
		targets: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wattloop_scrape_target_up",
			Help: "Whether the last scrape of a target gave a page that could be read.",
		}, []string{"target"}),
		uses: map[string]int{},
	}
	if reg != nil {
		reg.MustRegister(m.scrapes, m.samples, m.targets)
	}
	return m
}

// targetMetrics are those of one target.
type targetMetrics struct {
	ok, failed, unstored prometheus.Counter
	stored               prometheus.Counter
	not                  [numReasons]prometheus.Counter
	up                   prometheus.Gauge
}

func (m *metrics) target(url string) *targetMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uses[url]++
	t := &targetMetrics{
		ok:       m.scrapes.WithLabelValues(url, "ok"),
		failed:   m.scrapes.WithLabelValues(url, "failed"),
		unstored: m.scrapes.WithLabelValues(url, "unstored"),
		stored:   m.samples.WithLabelValues(url, "stored", ""),
		up:       m.targets.WithLabelValues(url),
	}
	for why := fine + 1; why < numReasons; why++ {
		t.not[why] = m.samples.WithLabelValues(url, reasonWords[why].result, reasonWords[why].name)
	}
	return t
}

// remove forgets the figures of a target that is scraped no more.
func (m *metrics) remove(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uses[url]--; m.uses[url] > 0 {
		return
	}
	delete(m.uses, url)
	l := prometheus.Labels{"target": url}
	m.scrapes.DeletePartialMatch(l)
	m.samples.DeletePartialMatch(l)
	m.targets.DeletePartialMatch(l)
}
