package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	senders    = 2
	settleIdle = 3 * time.Second
	settleLoad = 5 * time.Second
)

// lap is what one run of one contender cost.
type lap struct {
	ack, settled float64 // CPU, microseconds a point: at the last ack, and after what it does behind that
	idle, loaded memory
	log, blocks  float64 // bytes a sample: as written, and compacted; 0 where there is no such thing
	bytesAPoint  float64
}

// race starts a contender on an empty folder, sends it so many ticks of the
// fleet, and takes it down.
func (r run) race(c contender, domain string, series, ticks int) (lap, error) {
	dir, err := os.MkdirTemp(r.dir, c.name+"-")
	if err != nil {
		return lap{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return lap{}, err
	}
	bodies, err := fleet(domain, series)
	if err != nil {
		return lap{}, err
	}
	t, err := c.start(r.ctx, dir)
	if err != nil {
		return lap{}, err
	}
	l, err := r.load(t, bodies, ticks)
	err = errors.Join(err, t.stop()) // what a server writes only as it ends is in its folder now
	if err != nil || t.data == "" {
		return l, err
	}
	samples := float64(series * ticks)
	n, err := sizeOf(t.data)
	if err != nil {
		return lap{}, err
	}
	l.log = float64(n) / samples
	if c.tsdb {
		n, err := ask(r.ctx, "compact", t.data)
		if err != nil {
			return lap{}, err
		}
		l.blocks = n / samples
	}
	return l, nil
}

func (r run) load(t *target, bodies []*body, ticks int) (lap, error) {
	var l lap
	if err := r.wait(settleIdle); err != nil {
		return l, err
	}
	pids, err := family(t.cmd.Process.Pid)
	if err != nil {
		return l, err
	}
	if l.idle, err = memoryOf(pids); err != nil {
		return l, err
	}
	start := time.Now().UnixMilli() - int64(ticks)*tickMillis
	if err := send(r.ctx, t.url, bodies, start, 1); err != nil { // makes the series
		return l, err
	}
	before, err := cpuOf(pids)
	if err != nil {
		return l, err
	}
	if err := send(r.ctx, t.url, bodies, start+tickMillis, ticks-1); err != nil {
		return l, err
	}
	acked, err := cpuOf(pids)
	if err != nil {
		return l, err
	}
	if err := r.wait(settleLoad); err != nil {
		return l, err
	}
	settled, err := cpuOf(pids)
	if err != nil {
		return l, err
	}
	if l.loaded, err = memoryOf(pids); err != nil {
		return l, err
	}
	points := float64((ticks - 1) * len(bodies) * pointsPerBody)
	l.ack = float64((acked - before).Microseconds()) / points
	l.settled = float64((settled - before).Microseconds()) / points
	l.bytesAPoint = float64(len(bodies[0].wire)) / pointsPerBody
	return l, nil
}

// wait lets a server come to rest.
func (r run) wait(d time.Duration) error {
	if r.short {
		d /= 5
	}
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// send sends ticks of all bodies from two clients. Each has bodies of its own,
// so that the points of a series stay in order.
func send(ctx context.Context, url string, bodies []*body, start int64, ticks int) error {
	var wg sync.WaitGroup
	errs := make([]error, senders)
	for s := range senders {
		wg.Go(func() {
			hc := &http.Client{Transport: &http.Transport{}}
			defer hc.CloseIdleConnections()
			for t := range ticks {
				for i := s; i < len(bodies); i += senders {
					bodies[i].patch(start + int64(t)*tickMillis)
					if errs[s] = post(ctx, hc, url, bodies[i].wire); errs[s] != nil {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// post takes only the answer that says that every point was stored.
func post(ctx context.Context, hc *http.Client, url string, wire []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(wire))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode/100 != 2 || len(b) != 0) {
		err = fmt.Errorf("%s: answer %d %q", url, resp.StatusCode, b)
	}
	return err
}

// inProcess runs a child on an empty folder: microseconds of CPU a point.
func (r run) inProcess(work string, series, ticks int) (float64, error) {
	dir, err := os.MkdirTemp(r.dir, work+"-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return ask(r.ctx, work, filepath.Join(dir, "data"), fmt.Sprint(series), fmt.Sprint(ticks))
}
