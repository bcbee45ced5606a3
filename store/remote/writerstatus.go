package remote

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/queue"
)

// WriterStatus is how a Writer stands. Samples are floats, histograms and
// exemplars.
type WriterStatus struct {
	URL        string
	Message    string // Remote Write 2.0 or 1.0, whichever was last taken; "" before one was
	QueueBytes int64  // that wait
	QueueLimit int64
	Sent       uint64 // samples that the receiver took
	Dropped    uint64 // samples that are lost to it: refused for good, or without room
	LostBytes  uint64 // of the queue, that could not be read back
	Answering  bool   // the last attempt was answered with other than a wish to wait
	Error      string // of the last attempt that failed; "" before one has
	ErrorAt    time.Time
}

// Status never blocks for long.
func (w *Writer) Status() WriterStatus {
	waiting, _ := w.q.Size()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.st
	s.QueueBytes, s.QueueLimit = waiting, w.o.MaxBytes
	return s
}

type writerMetrics struct {
	samples, retries, lost *prometheus.CounterVec
	bytes                  prometheus.Gauge
}

func newWriterMetrics(reg prometheus.Registerer) *writerMetrics {
	m := &writerMetrics{
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_remote_write_samples_total",
			Help: "Committed samples, histograms and exemplars on their way to storage.remote_write: queued, then sent or dropped.",
		}, []string{"result", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_remote_write_retries_total",
			Help: "Attempts that failed and are repeated, by HTTP status.",
		}, []string{"reason"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_remote_write_queue_lost_bytes_total",
			Help: "Bytes of the queue that could not be read back: torn by a crash, corrupt, or unreadable.",
		}, []string{"reason"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wattloop_remote_write_queue_bytes",
			Help: "Bytes that wait for storage.remote_write.",
		}),
	}
	m.samples.WithLabelValues("queued", "")
	m.samples.WithLabelValues("sent", "")
	m.samples.WithLabelValues("dropped", "full")
	m.retries.WithLabelValues("unreachable")
	for _, reason := range []string{"torn", "corrupt", "unreadable"} {
		m.lost.WithLabelValues(reason)
	}
	if reg != nil {
		for _, c := range []prometheus.Collector{m.samples, m.retries, m.lost, m.bytes} {
			if err := reg.Register(c); err != nil { // of a Writer before this one
				are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
				if !ok {
					panic("BUG: remote write: " + err.Error())
				}
				m.adopt(c, are.ExistingCollector)
			}
		}
	}
	return m
}

// adopt goes on with what a Writer before this one has counted.
func (m *writerMetrics) adopt(mine, old prometheus.Collector) {
	switch mine {
	case prometheus.Collector(m.samples):
		m.samples = old.(*prometheus.CounterVec)
	case prometheus.Collector(m.retries):
		m.retries = old.(*prometheus.CounterVec)
	case prometheus.Collector(m.lost):
		m.lost = old.(*prometheus.CounterVec)
	default:
		m.bytes = old.(prometheus.Gauge)
	}
}

func (w *Writer) measure() {
	waiting, _ := w.q.Size()
	w.m.bytes.Set(float64(waiting))
}

// leave notes what is being sent from now on; it is false for what was counted as
// dropped meanwhile.
func (w *Writer) leave(recs []queue.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if recs[0].Segment() <= w.gone {
		return false
	}
	w.leaving.segment, w.leaving.n, w.leaving.gone = recs[0].Segment(), 0, false
	for _, r := range recs {
		w.leaving.n += entriesOf(r.Wire)
	}
	return true
}

// abandon counts what was being sent, where the queue has it no more.
func (w *Writer) abandon() {
	w.mu.Lock()
	n := w.leaving.n
	if !w.leaving.gone {
		n = 0
	}
	w.mu.Unlock()
	w.drop(n, "full", "samples dropped: the receiver took none for too long", errFull)
}

// settle forgets how many entries of a file waited that have left the queue.
func (w *Writer) settle(recs []queue.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaving.n = 0
	for _, r := range recs {
		n := r.Segment()
		if w.waiting[n] -= entriesOf(r.Wire); w.waiting[n] <= 0 {
			delete(w.waiting, n)
		}
	}
	w.measure()
}

// sent notes a request that the receiver took.
func (w *Writer) sent(n int64, message remote.WriteMessageType) {
	w.m.samples.WithLabelValues("sent", "").Add(float64(n))
	name := version(message)
	w.mu.Lock()
	known := w.st.Answering && w.st.Message == name
	w.st.Answering, w.st.Message = true, name
	w.st.Sent += uint64(n)
	w.mu.Unlock()
	if !known {
		w.log.Info("the receiver takes samples", "remote_write", w.url(), "message", name)
	}
}

// failed notes an attempt that is repeated. Only the first of a row is logged.
func (w *Writer) failed(err error, reason string) {
	w.m.retries.WithLabelValues(reason).Inc()
	w.mu.Lock()
	first := w.st.Answering || w.st.Error == ""
	w.st.Answering, w.st.Error, w.st.ErrorAt = false, clip(err.Error()), w.o.Clock()
	text := w.st.Error
	w.mu.Unlock()
	if first {
		w.log.Warn("the receiver does not take samples, they wait in the queue", "remote_write", w.url(), "error", text)
	}
}

func (w *Writer) url() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.st.URL
}

// sayEvery is how often one kind of loss is logged; all of it is counted.
const sayEvery = time.Minute

// drop counts samples that are lost to the receiver, and says why.
func (w *Writer) drop(n int64, reason, message string, err error) {
	if n <= 0 {
		return
	}
	w.m.samples.WithLabelValues("dropped", reason).Add(float64(n))
	now := w.o.Clock()
	w.mu.Lock()
	w.st.Dropped += uint64(n)
	w.st.Error, w.st.ErrorAt = clip(err.Error()), now
	text := w.st.Error
	last, ok := w.said[reason]
	quiet := ok && now.Sub(last) < sayEvery && !now.Before(last)
	if !quiet {
		w.said[reason] = now
	}
	w.mu.Unlock()
	if !quiet {
		w.log.Warn(message, "remote_write", w.url(), "samples", n, "reason", reason, "error", text)
	}
}

var errFull = errors.New("the queue is full: the oldest samples make room")

// dropped counts what a file held that is dropped for want of room.
func (w *Writer) dropped(segment uint64, rest func(func(queue.Record))) {
	w.mu.Lock()
	n, known := w.waiting[segment]
	delete(w.waiting, segment)
	w.gone = segment
	sent := int64(0)
	if w.leaving.segment == segment {
		sent, w.leaving.gone = w.leaving.n, true
	}
	w.mu.Unlock()
	if !known { // an earlier process wrote it
		rest(func(r queue.Record) { n += entriesOf(r.Wire) })
	}
	w.drop(n-sent, "full", "samples dropped: the receiver took none for too long", errFull)
}

// lost counts what of the queue cannot be read.
func (w *Writer) lost(why error, segment uint64, bytes int64) {
	reason := "unreadable"
	switch {
	case errors.Is(why, queue.ErrTorn):
		reason = "torn"
	case errors.Is(why, queue.ErrCorrupt):
		reason = "corrupt"
	}
	w.m.lost.WithLabelValues(reason).Add(float64(bytes))
	w.mu.Lock()
	w.st.LostBytes += uint64(bytes)
	w.mu.Unlock()
	w.log.Warn("part of the queue cannot be read and is passed over", "segment", segment, "bytes", bytes, "reason", reason, "error", why)
}

func (w *Writer) trouble(err error) {
	w.log.Warn("remote write's queue: the disk refuses", "error", err)
}
