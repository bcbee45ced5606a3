package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// child is what this program does when it is started as `bench child WORK ...`:
// one piece of work in a process of its own, so that the processor time of the
// process is that of the work.
func child(args []string) error {
	if args[0] == "sink" {
		return sink()
	}
	if args[0] == "compact" {
		return compact(args[1])
	}
	series, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	ticks, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	bodies, err := fleet(unread, series)
	if err != nil {
		return err
	}
	db, err := store.Open(store.Options{Path: args[1], Durability: store.DurabilityOS})
	if err != nil {
		return err
	}
	defer db.Close()
	work := exporting(db)
	if args[0] == "append" {
		work = appending(db, bodies)
	}
	start := time.Now().UnixMilli() - int64(ticks)*tickMillis
	var took time.Duration
	for t := range ticks {
		for _, b := range bodies {
			b.patch(start + int64(t)*tickMillis)
		}
		before, err := ownCPU()
		if err != nil {
			return err
		}
		for _, b := range bodies {
			if err := work(b, start+int64(t)*tickMillis); err != nil {
				return err
			}
		}
		after, err := ownCPU()
		if err != nil {
			return err
		}
		if t > 0 { // the first makes the series
			took += after - before
		}
	}
	fmt.Println(float64(took.Nanoseconds()) / 1000 / float64((ticks-1)*series))
	return nil
}

// ownCPU is the user and system time of this process, all threads.
func ownCPU() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// exporting is wire bytes to committed.
func exporting(db *store.DB) func(*body, int64) error {
	recv := ingest.NewReceiver(ingest.Options{Appendable: db, Queryable: db})
	return func(b *body, _ int64) error {
		res, err := recv.Export(context.Background(), b.wire)
		if err == nil && res.Accepted != pointsPerBody {
			err = fmt.Errorf("%d of %d points accepted: %s", res.Accepted, pointsPerBody, res.Message)
		}
		return err
	}
}

// appending is the same samples handed to the store by the reference that it
// gave: the least that any way into it costs.
func appending(db *store.DB, bodies []*body) func(*body, int64) error {
	type known struct {
		refs   []storage.SeriesRef
		labels []labels.Labels
	}
	all := map[*body]*known{}
	for n, b := range bodies {
		k := &known{refs: make([]storage.SeriesRef, len(b.points))}
		for i := range b.points {
			k.labels = append(k.labels, labelsOf(b.points[i].series, n*nodesPerRequest+i/seriesPerNode))
		}
		all[b] = k
	}
	return func(b *body, ms int64) error {
		k := all[b]
		app := db.Appender(context.Background())
		for i := range b.points {
			ref, err := app.Append(k.refs[i], k.labels[i], ms, b.points[i].v)
			if err != nil {
				return err
			}
			k.refs[i] = ref
		}
		return app.Commit()
	}
}

// labelsOf are as many labels of the same lengths as a series has that comes in
// as a request.
func labelsOf(s *fleetSeries, n int) labels.Labels {
	node := nodeName(n)
	list := []string{"__name__", strings.ReplaceAll(s.metric, ".", "_") + "_" + s.unit, "hw_id", s.id, "hw_type", s.typ,
		"job", "hwagent", "instance", node, "k8s_node_name", node, "host_name", node}
	if s.more != "" {
		list = append(list, "direction", s.more)
	}
	return labels.FromStrings(list...)
}

// compact makes blocks of all that the write-ahead log of a TSDB holds, and
// prints how many bytes they take.
func compact(dir string) error {
	o := tsdb.DefaultOptions()
	o.NoLockfile, o.OutOfOrderTimeWindow = true, (30 * time.Minute).Milliseconds()
	db, err := tsdb.Open(dir, nil, nil, o, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	db.DisableCompactions()
	if err := db.CompactHead(tsdb.NewRangeHead(db.Head(), db.Head().MinTime(), db.Head().MaxTime())); err != nil {
		return err
	}
	blocks, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil {
		return err
	}
	var sum int64
	for _, meta := range blocks {
		n, err := sizeOf(filepath.Dir(meta))
		if err != nil {
			return err
		}
		sum += n
	}
	fmt.Println(sum)
	return nil
}

// self is this program.
var self = func() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}()

// ask runs a child and reads the number that it prints last.
func ask(ctx context.Context, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, self, append([]string{"child"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("bench child %s: %w", args[0], err)
	}
	last := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		last = lines.Text()
	}
	return strconv.ParseFloat(last, 64)
}
