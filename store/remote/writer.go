package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/queue"
	"github.com/wattloop/wattloop/store"
)

// DefaultWriteQueue is WriterOptions.MaxBytes unless set.
const DefaultWriteQueue = 256 << 20

// WriterOptions are what a Writer is made of.
type WriterOptions struct {
	Target Target
	Dir    string // of the queue; made when it is not there
	// MaxBytes bounds the queue on disk; beyond it the oldest sixteenth is dropped.
	// 0 means DefaultWriteQueue.
	MaxBytes int64

	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger          // may be nil
	Clock      func() time.Time      // nil means time.Now
}

// Target is where a Writer sends to.
type Target struct {
	URL  *url.URL     // of the receiver itself, like http://prometheus:9090/api/v1/write
	HTTP *http.Client // nil: one without credentials
	// Message is the one that samples are sent in. Empty: that of Remote Write 2.0,
	// or of 1.0 where the receiver does not know it.
	Message remote.WriteMessageType
}

// Writer sends batches on by Remote Write, at least once each, the samples of each
// series in the order of their commits. It never makes a commit wait for the
// other side: batches wait in a queue on disk, which survives the death of the
// process, and the last second of it perhaps not a loss of power.
type Writer struct {
	o      WriterOptions
	m      *writerMetrics
	log    *slog.Logger
	q      *queue.Queue
	lock   *os.File
	cancel context.CancelFunc
	sender sync.WaitGroup
	once   sync.Once
	err    error

	enc encoder // of the one who commits; guarded by the queue's own lock

	mu      sync.Mutex
	target  Target
	aimed   int                     // targets so far
	message remote.WriteMessageType // that the target of now is written to in
	again   context.CancelFunc      // ends the attempt that goes on, for a new target
	waiting map[uint64]int64        // entries, by number of the file, as far as this process wrote them
	gone    uint64                  // the newest file that was dropped
	leaving struct {                // entries of a file that are being sent: no longer the queue's to drop
		segment uint64
		n       int64
		gone    bool // the file is
	}
	st   WriterStatus
	said map[string]time.Time
}

// OpenWriter takes over the queue of WriterOptions.Dir and begins to send.
func OpenWriter(o WriterOptions) (*Writer, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultWriteQueue
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	w := &Writer{o: o, log: o.Logger, m: newWriterMetrics(o.Registerer), waiting: map[uint64]int64{}, said: map[string]time.Time{}}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("remote write: %w", err)
	}
	var err error
	if w.lock, err = os.OpenFile(filepath.Join(o.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("remote write: %w", err)
	}
	if err := unix.Flock(int(w.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("remote write: %s: another process has the queue open; give this one its own state.path", o.Dir), w.lock.Close())
	}
	w.q, err = queue.Open(queue.Options{Dir: o.Dir, Limit: o.MaxBytes, Oldest: true, Lost: w.lost, Trouble: w.trouble, Dropped: w.dropped})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("remote write: %w", err), w.lock.Close())
	}
	w.aim(o.Target)
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.measure()
	w.sender.Go(func() { w.run(ctx) })
	return w, nil
}

// Take queues what a commit stored. It is for store.DB.OnCommit.
func (w *Writer) Take(b store.Batch) {
	var segment uint64
	err := w.q.AppendFunc(context.Background(), recordKind, func(s uint64) []byte {
		segment = s
		return w.enc.record(s, b)
	})
	n := int64(len(b))
	if err != nil {
		// What the encoder wrote of series is not in the file.
		w.enc.forget()
		w.q.Begin()
		w.drop(n, "disk", "the queue cannot be written", err)
		return
	}
	w.mu.Lock()
	w.waiting[segment] += n
	w.mu.Unlock()
	w.m.samples.WithLabelValues("queued", "").Add(float64(n))
	w.measure()
}

// Retarget has everything that waits, and what comes, go elsewhere.
func (w *Writer) Retarget(t Target) { w.aim(t) }

func (w *Writer) aim(t Target) {
	if t.HTTP == nil {
		t.HTTP = &http.Client{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target, w.st.URL, w.st.Message = t, t.URL.String(), ""
	w.aimed++
	if w.message = t.Message; w.message == "" {
		w.message = remote.WriteV2MessageType
	}
	if w.again != nil {
		w.again()
	}
}

// Close sends what the other side takes at once, until ctx ends, and keeps the
// rest for the next OpenWriter. Nothing may be taken any more.
func (w *Writer) Close(ctx context.Context) error {
	w.once.Do(func() {
		w.q.Refuse()
		w.drain(ctx)
		w.cancel()
		w.sender.Wait()
		w.err = errors.Join(w.q.Close(), w.lock.Close())
	})
	return w.err
}

// drain waits until the queue is empty, ctx has ended or the other side fails.
func (w *Writer) drain(ctx context.Context) {
	for {
		waiting, _ := w.q.Size()
		w.mu.Lock()
		failing := !w.st.Answering
		w.mu.Unlock()
		if waiting == 0 || failing {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
