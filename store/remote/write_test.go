package remote_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	metrics "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	promremote "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/store/remote"
)

// taker is a server made of Prometheus's own remote write handler and TSDB.
type taker struct {
	*httptest.Server
	db *tsdb.DB
	// before, unless nil, answers in place of the handler where it says so.
	before atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	came   atomic.Int64 // requests
}

// newTaker knows Remote Write 2.0, or the messages that are named; who does not
// know one answers 415, as the specification asks.
func newTaker(t testing.TB, known ...remoteapi.WriteMessageType) *taker {
	t.Helper()
	if known == nil {
		known = remoteapi.MessageTypes{remoteapi.WriteV2MessageType}
	}
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = time.Hour.Milliseconds()
	o.EnableExemplarStorage, o.MaxExemplars = true, 1000
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &taker{db: db}
	h := promremote.NewWriteHandler(slog.New(slog.DiscardHandler), nil, db, known, false, false)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.before.Load(); f == nil || !(*f)(w, r) {
			h.ServeHTTP(w, r)
		}
		s.came.Add(1)
	}))
	t.Cleanup(func() {
		s.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *taker) answer(code int, header ...string) {
	f := func(w http.ResponseWriter, r *http.Request) bool {
		io.Copy(io.Discard, r.Body)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, "no\nthanks")
		return true
	}
	s.before.Store(&f)
}

func (s *taker) target(t testing.TB) remote.Target {
	return remote.Target{URL: mustURL(t, s.URL+"/api/v1/write"), HTTP: s.Client()}
}

// dump is all that a store holds, one line a sample.
func dump(t testing.TB, q interface {
	Querier(mint, maxt int64) (storage.Querier, error)
}) []string {
	t.Helper()
	querier, err := q.Querier(0, 1<<62)
	if err != nil {
		t.Fatal(err)
	}
	defer querier.Close()
	var out []string
	set := querier.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for vt := it.Next(); vt != chunkenc.ValNone; vt = it.Next() {
			switch vt {
			case chunkenc.ValFloat:
				ts, v := it.At()
				out = append(out, fmt.Sprintf("%s %d %x", set.At().Labels(), ts, v))
			case chunkenc.ValHistogram:
				ts, h := it.AtHistogram(nil)
				out = append(out, fmt.Sprintf("%s %d %s %x", set.At().Labels(), ts, h, h.Sum))
			case chunkenc.ValFloatHistogram:
				ts, h := it.AtFloatHistogram(nil)
				out = append(out, fmt.Sprintf("%s %d float %s", set.At().Labels(), ts, h))
			}
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}

func exemplars(t testing.TB, q interface {
	ExemplarQuerier(context.Context) (storage.ExemplarQuerier, error)
}) string {
	t.Helper()
	eq, err := q.ExemplarQuerier(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	all, err := eq.Select(0, 1<<62, []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

func openWriter(t testing.TB, o remote.WriterOptions) *remote.Writer {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	w, err := remote.OpenWriter(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNow(t, w) })
	return w
}

func closeNow(t testing.TB, w *remote.Writer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
}

// await waits for what the sender does in its own time.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no %s within a quarter of a minute", what)
}

// settled waits until so many samples were sent or dropped, and none wait.
func (s *taker) settled(t testing.TB, w *remote.Writer, n uint64) {
	t.Helper()
	await(t, fmt.Sprintf("%d samples settled", n), func() bool {
		st := w.Status()
		return st.Sent+st.Dropped >= n && st.QueueBytes == 0
	})
}

// careless has the taker read whatever comes as Remote Write 1.0, in which a
// message of 2.0 holds nothing, as VictoriaMetrics does.
func (s *taker) careless() {
	f := func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Set("Content-Type", "application/x-protobuf")
		return false
	}
	s.before.Store(&f)
}

// Every sample, label, histogram, staleness marker and exemplar is on the other
// side as it is here, by Prometheus's own handler, whatever message that knows.
func TestWriteEverything(t *testing.T) {
	const v1, v2 = remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType
	careless := newTaker(t, v1)
	careless.careless()
	for _, c := range []struct {
		name    string
		there   *taker
		message remoteapi.WriteMessageType
		spoken  string
	}{
		{"2.0 alone", newTaker(t, v2), "", "Remote Write 2.0"},
		{"1.0 alone", newTaker(t, v1), "", "Remote Write 1.0"},
		{"1.0, whatever comes", careless, "", "Remote Write 1.0"},
		{"both", newTaker(t, v1, v2), "", "Remote Write 2.0"},
		{"both, 1.0 asked for", newTaker(t, v1, v2), v1, "Remote Write 1.0"},
		{"both, 2.0 asked for", newTaker(t, v1, v2), v2, "Remote Write 2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := c.there.target(t)
			target.Message = c.message
			writeEverything(t, c.there, target, c.spoken)
		})
	}
}

func writeEverything(t *testing.T, there *taker, target remote.Target, spoken string) {
	here := openStore(t, store.Options{OutOfOrder: time.Hour})
	w := openWriter(t, remote.WriterOptions{Target: target})
	n := uint64(0)
	here.OnCommit(func(b store.Batch) { n += uint64(len(b)); w.Take(b) })
	fill(t, here)
	ints, floats := tsdbutil.GenerateTestHistograms(50), tsdbutil.GenerateTestFloatHistograms(50)
	ints = append(ints, &histogram.Histogram{Sum: stale})
	for i, h := range ints {
		put(t, here, labels.FromStrings("__name__", "wait_seconds", "kind", "int"), sample{at: float64(i), h: h})
		put(t, here, labels.FromStrings("__name__", "custom"), sample{at: float64(i), h: &histogram.Histogram{
			Schema: histogram.CustomBucketsSchema, Count: 6, Sum: 1.5, CustomValues: []float64{1, 2, 5},
			PositiveSpans: []histogram.Span{{Length: 2}, {Offset: 1, Length: 1}}, PositiveBuckets: []int64{1, 1, 1},
		}})
	}
	app := here.Appender(t.Context())
	for i, h := range floats {
		if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "wait_seconds", "kind", "float"), second(float64(i)), nil, h); err != nil {
			t.Fatal(err)
		}
	}
	ls := labels.FromStrings("__name__", "with_exemplar_total")
	ref, err := app.Append(0, ls, second(3), 1)
	if err == nil {
		_, err = app.AppendExemplar(ref, ls, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", "4bf9"), Value: 0.7, Ts: second(2), HasTs: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "mixed"), second(1), ints[0], nil); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Append(0, labels.FromStrings("__name__", "mixed"), second(2), 5); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	there.settled(t, w, n)
	if st := w.Status(); st.Sent != n || st.Dropped != 0 || !st.Answering || st.QueueBytes != 0 || st.Message != spoken {
		t.Errorf("status %+v; want %d sent by %s", st, n, spoken)
	}
	want, got := dump(t, here), dump(t, there.db)
	if !slices.Equal(got, want) {
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("%d samples there, %d here; the first that differs:\n%s\n%s", len(got), len(want), want[i], append(got, "")[i])
			}
		}
		t.Fatalf("%d samples there, %d here", len(got), len(want))
	}
	if len(want) < 1000 {
		t.Errorf("only %d samples were compared", len(want))
	}
	if got := exemplars(t, there.db); !strings.Contains(got, "4bf9") {
		t.Errorf("exemplars there: %s", got)
	}
}

// What the other side may answer, and what becomes of the samples.
func TestWriteAnswers(t *testing.T) {
	there := newTaker(t)
	reg := metrics.NewRegistry()
	w := openWriter(t, remote.WriterOptions{Target: there.target(t), Registerer: reg})
	at := 0.0
	take := func() { at++; w.Take(batch(at, "x", at)) }
	dropped := func(reason string) float64 {
		n, err := testutil.GatherAndCount(reg, "wattloop_remote_write_samples_total")
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		fams, _ := reg.Gather()
		for _, f := range fams {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if f.GetName() == "wattloop_remote_write_samples_total" && l.GetName() == "reason" && l.GetValue() == reason {
						return m.Counter.GetValue()
					}
				}
			}
		}
		return 0
	}
	for i, c := range []struct {
		code   int
		reason string
	}{{400, "400"}, {401, "401"}, {404, "404"}, {415, "415"}, {301, "301"}} {
		there.answer(c.code)
		take()
		there.settled(t, w, uint64(i+1))
		if got := dropped(c.reason); got != 1 {
			t.Errorf("%d: %g dropped as %s", c.code, got, c.reason)
		}
	}
	if st := w.Status(); st.Sent != 0 || strings.Contains(st.Error, "\n") || !st.Answering {
		t.Errorf("status %+v", st)
	}
	for _, code := range []int{500, 503, 429} {
		there.answer(code, "Retry-After", "0")
		came, settled := there.came.Load(), w.Status().Sent+w.Status().Dropped
		take()
		await(t, "attempt", func() bool { return there.came.Load() > came })
		there.before.Store(nil)
		there.settled(t, w, settled+1)
	}
	if got := dump(t, there.db); len(got) != 3 {
		t.Errorf("there: %v; want the three that were repeated", got)
	}
}

// What is refused because of its message is sent in the other one, unless the
// message is fixed; nothing is lost when the receiver becomes another.
func TestWriteMessage(t *testing.T) {
	const v1, v2 = remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType
	f := func(there *taker, message remoteapi.WriteMessageType, want string) {
		t.Helper()
		target := there.target(t)
		target.Message = message
		w := openWriter(t, remote.WriterOptions{Target: target})
		w.Take(batch(1, "x", 1))
		there.settled(t, w, 1)
		if st := w.Status(); st.Dropped != 1 || !strings.Contains(st.Error, want) || len(dump(t, there.db)) > 0 {
			t.Errorf("message %q: %+v; want %s", message, st, want)
		}
	}
	careless := newTaker(t, v1)
	careless.careless()
	f(newTaker(t, v1), v2, "HTTP 415: it does not know Remote Write 2.0; let storage.remote_write_protobuf_message be auto")
	f(newTaker(t, v2), v1, "HTTP 415: it does not know Remote Write 1.0; let storage.remote_write_protobuf_message be auto")
	f(careless, v2, "confirms nothing of what it took: it does not know Remote Write 2.0; let storage.remote_write_protobuf_message be auto")
	none, page := newTaker(t), newTaker(t)
	none.answer(http.StatusUnsupportedMediaType)
	f(none, "", "HTTP 415: it knows neither Remote Write 2.0 nor 1.0")
	page.answer(http.StatusOK, "Content-Type", "text/html; charset=utf-8")
	f(page, "", "a page for people; is this the address of the receiver?")
	f(page, v1, "a page for people")

	// An older receiver takes the place of a newer one at the same address, and back.
	old, young := newTaker(t, v1), newTaker(t, v2)
	now := atomic.Pointer[taker]{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().Config.Handler.ServeHTTP(w, r) }))
	defer front.Close()
	w := openWriter(t, remote.WriterOptions{Target: remote.Target{URL: mustURL(t, front.URL+"/api/v1/write")}})
	for i, s := range []*taker{young, old, old, young, old} {
		now.Store(s)
		w.Take(batch(float64(i), "x", float64(i)))
		s.settled(t, w, uint64(i+1))
	}
	if st := w.Status(); st.Sent != 5 || st.Dropped != 0 || st.Message != "Remote Write 1.0" || len(dump(t, old.db)) != 3 || len(dump(t, young.db)) != 2 {
		t.Errorf("%+v; the old one has %v, the young one %v", st, dump(t, old.db), dump(t, young.db))
	}
	if got := old.came.Load(); got != 5 {
		t.Errorf("%d requests came to the old one; want 3, and the 2 that were not understood", got)
	}
}

// batch is one sample of one series, as a store would hand it over.
func batch(at float64, name string, v float64) store.Batch {
	return store.Batch{{Ref: storage.SeriesRef(len(name)), Labels: labels.FromStrings("__name__", name), T: second(at), V: v}}
}

// Property: whenever the process dies, what was committed is on the other side at
// the end, each series in its order.
func TestWriteKilled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 20 {
		there := newTaker(t)
		dir := t.TempDir()
		var want []string
		at := 0.0
		for life := range 4 {
			// Which requests come through hangs on the round; what is sent twice must do no harm.
			var mu sync.Mutex
			budget := rnd.IntN(6)
			f := func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if budget--; budget >= 0 {
					return false
				}
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			there.before.Store(&f)
			if life == 3 {
				there.before.Store(nil)
			}
			w, err := remote.OpenWriter(remote.WriterOptions{Target: there.target(t), Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			for range rnd.IntN(200) {
				at++
				name := []string{"a", "bb", "ccc"}[rnd.IntN(3)]
				w.Take(batch(at, name, at))
				want = append(want, fmt.Sprintf(`{__name__=%q} %d %x`, name, second(at), at))
			}
			if life < 3 {
				// As after kill -9: the folder as it is now, under another name.
				next := t.TempDir()
				names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range append(names, filepath.Join(dir, "cursor")) {
					if b, err := os.ReadFile(name); err == nil { // else it was done with
						if err := os.WriteFile(filepath.Join(next, filepath.Base(name)), b, 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				closeNow(t, w)
				dir = next
				continue
			}
			await(t, "empty queue", func() bool { return w.Status().QueueBytes == 0 })
			if st := w.Status(); st.Dropped > 0 || st.LostBytes > 0 {
				t.Errorf("round %d: %+v", round, st)
			}
			closeNow(t, w)
		}
		slices.Sort(want)
		got := dump(t, there.db)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %d samples there; want %d", round, len(got), len(want))
		}
	}
}

// A receiver that takes nothing costs the oldest samples, counted, and no commit
// waits for it.
func TestWriteFull(t *testing.T) {
	there := newTaker(t)
	there.answer(http.StatusServiceUnavailable, "Retry-After", "3600")
	dir := t.TempDir()
	w := openWriter(t, remote.WriterOptions{Target: there.target(t), Dir: dir, MaxBytes: 1 << 20})
	n := uint64(0)
	for at := 0.0; at < 3000; at++ {
		var b store.Batch
		for i := range 50 {
			b = append(b, store.Stored{Ref: storage.SeriesRef(i), Labels: labels.FromStrings("__name__", fmt.Sprintf("m%d", i)), T: second(at), V: at})
		}
		w.Take(b)
		n += 50
	}
	st := w.Status()
	if st.QueueBytes > 1<<20 || st.Dropped == 0 || !strings.Contains(st.Error, "full") {
		t.Fatalf("status %+v", st)
	}
	closeNow(t, w)
	st = w.Status()
	// The next process drops what it did not write too, and sends what is left.
	w = openWriter(t, remote.WriterOptions{Target: there.target(t), Dir: dir, MaxBytes: 1 << 20})
	more := uint64(0)
	for at := 3000.0; w.Status().Dropped == 0; at++ {
		w.Take(batch(at, "m0", at))
		more++
	}
	dropped := st.Dropped + w.Status().Dropped
	there.before.Store(nil)
	w.Retarget(there.target(t)) // which ends the wait of an hour
	await(t, "empty queue", func() bool { return w.Status().QueueBytes == 0 })
	if got := uint64(len(dump(t, there.db))); got != n+more-dropped {
		t.Errorf("%d samples there; want %d - %d", got, n+more, dropped)
	}
}

// Another target is gone over to at once, with what waits.
func TestRetarget(t *testing.T) {
	down, up := newTaker(t), newTaker(t)
	down.answer(http.StatusServiceUnavailable, "Retry-After", "3600")
	w := openWriter(t, remote.WriterOptions{Target: down.target(t)})
	w.Take(batch(1, "x", 1))
	await(t, "attempt", func() bool { return down.came.Load() > 0 })
	w.Retarget(up.target(t))
	up.settled(t, w, 1)
	if got := dump(t, up.db); len(got) != 1 || w.Status().URL != up.URL+"/api/v1/write" {
		t.Errorf("%v, %+v", got, w.Status())
	}
	if _, err := remote.OpenWriter(remote.WriterOptions{Target: up.target(t), Dir: filepath.Join("/dev/null", "x")}); err == nil {
		t.Error("a folder that cannot be")
	}
}

// BenchmarkTake is what a commit of 1,000 samples of known series pays for being
// sent on: what the queue takes, beside a receiver that takes nothing.
func BenchmarkTake(b *testing.B) {
	there := newTaker(b)
	there.answer(http.StatusServiceUnavailable, "Retry-After", "3600")
	w := openWriter(b, remote.WriterOptions{Target: there.target(b)})
	var batch store.Batch
	for i := range 1000 {
		batch = append(batch, store.Stored{Ref: storage.SeriesRef(i + 1), V: float64(i) * 1.1, Labels: labels.FromStrings("__name__", "hw_energy_joules_total",
			"hw_id", fmt.Sprint(i), "hw_type", "cpu", "instance", "node", "job", "hwexp", "k8s_node_name", "node")})
	}
	n := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		for i := range batch {
			batch[i].T = second(0) + n*5000
		}
		w.Take(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/sample")
}
