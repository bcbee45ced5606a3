package ingest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/wattloop/wattloop/store"
)

// powerCut is a receiver over a store, both with fsync, whose power can go: what
// is left then is of each file what an fsync had reached.
type powerCut struct {
	t  *testing.T
	db *store.DB
	r  *Receiver
	// cut is held for reading by an fsync, so that at the cut none is under way.
	cut sync.RWMutex

	mu       sync.Mutex
	acked    float64
	inFlight map[int][]byte // by client
	flying   map[int]float64
}

func (p *powerCut) open(data, sums string) {
	p.t.Helper()
	db, err := store.Open(store.Options{Path: data})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { db.Close() })
	p.db = db
	p.r, err = Open(Options{Appendable: db, Queryable: db, StateDir: sums, StateSync: true, NoTimeGate: true, Sync: func(ctx context.Context) error {
		p.cut.RLock()
		defer p.cut.RUnlock()
		return db.Sync(ctx)
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	r := p.r
	p.t.Cleanup(func() { r.Close() })
	r.w.sums.journal.sync = func(f *os.File) error {
		p.cut.RLock()
		defer p.cut.RUnlock()
		return f.Sync()
	}
}

func (p *powerCut) client(n, windows int, half chan<- struct{}) {
	for i := range windows {
		q := newPayload("service.name", "app")
		v := float64(1 + i%100)
		at := int64(10*i + n)
		q.sum("app.requests", "{request}", delta, at-10, at, v, "client", fmt.Sprint(n))
		wire := wireOf(p.t, q.md)
		p.mu.Lock()
		p.inFlight[n], p.flying[n] = wire, v
		p.mu.Unlock()
		if _, err := p.r.Export(context.Background(), wire); err != nil {
			p.t.Error(err)
			return
		}
		p.mu.Lock()
		p.acked += v
		delete(p.inFlight, n)
		delete(p.flying, n)
		p.mu.Unlock()
		if i == windows/2 {
			half <- struct{}{}
		}
	}
}

// The power goes while four clients send: what was acknowledged is there, no
// counter is below what the store shows, and of what was under way each window
// that its sender repeats is there at least once, and at most twice.
func TestSumsOutliveAPowerCut(t *testing.T) {
	p := &powerCut{t: t, inFlight: map[int][]byte{}, flying: map[int]float64{}}
	dir := t.TempDir()
	p.open(filepath.Join(dir, "data"), filepath.Join(dir, "sums"))
	const clients = 4
	half := make(chan struct{}, clients)
	var running sync.WaitGroup
	for n := range clients {
		running.Go(func() { p.client(n, 200, half) })
	}
	<-half
	p.mu.Lock() // the ledger first: what comes between is more than acknowledged
	acked, retries, flying := p.acked, [][]byte{}, 0.0
	for n, wire := range p.inFlight {
		retries, flying = append(retries, wire), flying+p.flying[n]
	}
	p.r.w.sums.journal.mu.Lock() // before cut, as who syncs the journal takes them
	p.cut.Lock()
	p.mu.Unlock()
	left := filepath.Join(dir, "left")
	p.copyStore(filepath.Join(left, "data"))
	p.copySums(filepath.Join(left, "sums"))
	p.cut.Unlock()
	p.r.w.sums.journal.mu.Unlock()
	running.Wait()

	p.open(filepath.Join(left, "data"), filepath.Join(left, "sums"))
	shown := 0.0
	total := func() (sum float64) {
		for text, samples := range readAll(t, p.db, base-1000, base+1<<31) {
			if parsedLabels(text)[metricLabel] == "app_requests_total" {
				for i := 1; i < len(samples); i++ {
					if samples[i].v < samples[i-1].v {
						t.Errorf("%s goes back: %v", text, samples[i-1:i+1])
					}
				}
				sum += samples[len(samples)-1].v
			}
		}
		return sum
	}
	if shown = total(); shown < acked {
		t.Errorf("the store shows %g of %g that were acknowledged", shown, acked)
	}
	for _, wire := range retries {
		if _, err := p.r.Export(context.Background(), wire); err != nil {
			t.Fatal(err)
		}
	}
	q := newPayload("service.name", "app")
	for n := range clients {
		q.sum("app.requests", "{request}", delta, 1<<30, 1<<30+1, 0, "client", fmt.Sprint(n))
	}
	if _, err := p.r.Export(context.Background(), wireOf(t, q.md)); err != nil {
		t.Fatal(err)
	}
	got := total()
	t.Logf("%g acknowledged, %g under way at the cut; %g shown after it, %g once that was repeated", acked, flying, shown, got)
	if got < acked+flying || got > acked+2*flying || acked < 1000 {
		t.Errorf("%g; want from %g to %g", got, acked+flying, acked+2*flying)
	}
}

func (p *powerCut) copyStore(dir string) {
	for name, size := range p.db.Synced() {
		p.head(filepath.Join(filepath.Dir(dir), "..", "data", name), filepath.Join(dir, name), size)
	}
}

func (p *powerCut) copySums(dir string) {
	j := p.r.w.sums.journal
	files, err := j.files()
	if err != nil {
		p.t.Fatal(err)
	}
	newest, safe := filepath.Base(j.f.Name()), j.safe
	for _, f := range files {
		name := j.path(f.n, f.suffix)
		info, err := os.Stat(name)
		if err != nil {
			p.t.Fatal(err)
		}
		size := info.Size()
		if filepath.Base(name) == newest {
			size = safe
		}
		p.head(name, filepath.Join(dir, filepath.Base(name)), size)
	}
}

func (p *powerCut) head(from, to string, size int64) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		p.t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.CopyN(out, in, size); err != nil {
		p.t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		p.t.Fatal(err)
	}
}
