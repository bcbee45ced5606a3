package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// ingestPoints measures wire bytes to committed, without the ack's fsync, in
// the steady state: every series is known.
func ingestPoints(r run) error {
	const series, perRequest = 10000, 500
	ticks := 60
	if r.short {
		ticks = 10
	}
	start := time.Now().Add(-20 * time.Minute)
	nodes := make([]*node, series/perRequest)
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprintf("node-%d", i), 8, perRequest)
	}
	var requests [][][]byte // by tick
	for t := range ticks + 2 {
		var tick [][]byte
		for _, n := range nodes {
			tick = append(tick, n.request(start.Add(time.Duration(t)*5*time.Second), 5*time.Second, func(string) float64 { return 100 }))
		}
		requests = append(requests, tick)
	}
	db, err := store.Open(store.Options{Path: filepath.Join(r.dir, "ingest"), Durability: "os"})
	if err != nil {
		return err
	}
	defer db.Close()
	recv := ingest.NewReceiver(ingest.Options{Appendable: db})
	var began time.Time
	for t, tick := range requests {
		if t == 2 { // the first two make the series
			began = time.Now()
		}
		for _, wire := range tick {
			res, err := recv.Export(r.ctx, wire)
			if err != nil {
				return err
			}
			if res.Rejected > 0 {
				return fmt.Errorf("%d points rejected: %s", res.Rejected, res.Message)
			}
		}
	}
	took := time.Since(began)
	points := ticks * series
	figure("ingest_ns_per_point", float64(took.Nanoseconds())/float64(points), "ns",
		fmt.Sprintf("n=%d points, %d series, %d a request, bytes to committed, one caller", points, series, perRequest))
	return nil
}
