package ingest

import "github.com/prometheus/client_golang/prometheus"

// window is what became of an interval of a stream of increments that was not
// simply added. Beside what a request's answer rejects, these are all the ways in
// which a running sum and the truth may differ (S2-78, S2-89).
type window uint8

const (
	// windowLost is a gap between two intervals of a delta stream, of one window
	// or of several. A window that comes late may still fill it.
	windowLost window = iota
	// windowLate came behind a newer one of its stream. A delta is added; a
	// cumulative value is in the newer one already.
	windowLate
	// windowRepeated was counted before: its sender did not read the answer.
	windowRepeated
	// windowBaseline is the first value of a cumulative stream that counts from
	// before the activation: what of it is the actor's own cannot be told.
	windowBaseline
	// windowBefore ended before the activation, and is rejected.
	windowBefore
	numWindows
)

var windowWords = [numWindows]string{"lost", "late", "repeated", "baseline", "before_activation"}

func newWindows(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "wattloop_ingest_windows_total",
		Help: "Intervals of delta and cumulative streams that were not simply added, by channel: lost, late, repeated, baseline, before_activation.",
	}, []string{"channel", "what"})
	if reg != nil {
		reg.MustRegister(c)
	}
	return c
}

// Windows are the intervals of a channel's streams that were not simply added,
// since the process started, as in wattloop_ingest_windows_total.
type Windows struct{ Lost, Late, Repeated, Baseline, BeforeActivation uint64 }

// Windows counts them.
func (c *Channel) Windows() Windows {
	n := func(w window) uint64 { return c.m.windowCounts[w].Load() }
	return Windows{n(windowLost), n(windowLate), n(windowRepeated), n(windowBaseline), n(windowBefore)}
}

// stateMetrics count what happens to the journal and to what it holds.
type stateMetrics struct {
	forgottenSeries, forgottenStreams prometheus.Counter
	torn, damaged, failed, snapshots  prometheus.Counter
}

func newStateMetrics(reg prometheus.Registerer) stateMetrics {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "wattloop_ingest_state_events_total",
		Help: "What happened to the running sums and their journal: forgotten_series, forgotten_stream, torn, damaged, failed, snapshot.",
	}, []string{"what"})
	if reg != nil {
		reg.MustRegister(c)
	}
	return stateMetrics{
		forgottenSeries: c.WithLabelValues("forgotten_series"), forgottenStreams: c.WithLabelValues("forgotten_stream"),
		torn: c.WithLabelValues("torn"), damaged: c.WithLabelValues("damaged"),
		failed: c.WithLabelValues("failed"), snapshots: c.WithLabelValues("snapshot"),
	}
}
