package scrape

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/ingest"
)

// X26: a page cannot write names that are the program's, and its label channel is
// renamed.
func TestNamesOfTheProgram(t *testing.T) {
	r := newRig(t)
	st := r.scrape(Target{URL: someTarget, Node: "n"}, 0, strings.Join([]string{
		"wattloop_reading 1", "joulie_twin_x 1", "ALERTS{alertname=\"a\"} 1", "ALERTS_FOR_STATE 1", "up 0", "scrape_duration_seconds 9", "scrape_x 1",
		`fine{channel="worker-1"} 1`, `fine{channel="worker-1",exported_channel="x"} 2`, "target_info{a=\"b\"} 1", "upper 1", "scraped 1", "",
	}, "\n"))
	if !st.Up || st.Samples != 12 || st.Stored != 5 || st.NotStored != 7 {
		t.Errorf("%+v", st)
	}
	wantLines(t, "up", r.of("up"), `{__name__="up", instance="n", job="scrape"} 0=1`)
	wantLines(t, "channel", r.query("fine", 0),
		`{__name__="fine", exported_channel="worker-1", instance="n", job="scrape"} 1`,
		`{__name__="fine", exported_channel="x", exported_exported_channel="worker-1", instance="n", job="scrape"} 2`)
	wantLines(t, "kept", r.of("scrape_samples_post_metric_relabeling"), `{__name__="scrape_samples_post_metric_relabeling", instance="n", job="scrape"} 0=5`)
	if got := len(r.stored()); got != numReports+5 {
		t.Errorf("%d series: %v", got, r.stored())
	}
}

// Times of a page are honoured within the out-of-order window and a minute ahead,
// and a series that only has such times gets no mark when it goes.
func TestTimesOfAPage(t *testing.T) {
	r := newRig(t)
	target := Target{URL: someTarget, Node: "n"}
	at := func(seconds int64) int64 { return base + seconds*1000 }
	st := r.scrape(target, 100*second, fmt.Sprintf("a 1 %d\nb 1 %d\nc 1 %d\nd 1 %d\na 2 %d\na 3 %d\n",
		at(90), at(161), at(160), at(100-1801), at(95), at(90)))
	if !st.Up || st.Stored != 3 || st.NotStored != 3 {
		t.Errorf("%+v", st)
	}
	r.scrape(target, 115*second, "")
	wantLines(t, "a", r.of("a"), `{__name__="a", instance="n", job="scrape"} 90=1 95=2`)
	wantLines(t, "b, 61 s ahead", r.of("b"))
	wantLines(t, "c, 60 s ahead", r.of("c"), `{__name__="c", instance="n", job="scrape"} 160=1`)
	wantLines(t, "d, out of the window", r.of("d"))
	// The same page again is no news, and another value at that time none either.
	st = r.scrape(target, 130*second, fmt.Sprintf("a 2 %d\n", at(95)))
	if st.Stored != 1 {
		t.Errorf("%+v", st)
	}
	if st = r.scrape(target, 145*second, fmt.Sprintf("a 7 %d\n", at(95))); st.Stored != 0 || st.NotStored != 1 {
		t.Errorf("%+v", st)
	}
}

// A value that becomes a blank is a gap also where its value is from an earlier
// process, or has a time of its own; a field that never had one gives no series.
func TestBlankAfterARestart(t *testing.T) {
	r := newRig(t)
	target := Target{URL: someTarget, Node: "n"}
	r.scrape(target, 0, "DCGM_FI_DEV_GPU_TEMP 61\n")
	delete(r.loops, someTarget) // a new process knows of no series
	r.scrape(target, 15*second, "DCGM_FI_DEV_GPU_TEMP 2147483632\nDCGM_FI_DEV_MEMORY_TEMP 0\n")
	r.scrape(target, 30*second, "DCGM_FI_DEV_GPU_TEMP 2147483632\nDCGM_FI_DEV_MEMORY_TEMP 0\n")
	r.scrape(target, 45*second, fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP 62\nDCGM_FI_DEV_SM_CLOCK 5 %d\n", base+45_000))
	r.scrape(target, 60*second, fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP 62\nDCGM_FI_DEV_SM_CLOCK 2147483633 %d\n", base+60_000))
	wantLines(t, "temperature", r.of("DCGM_FI_DEV_GPU_TEMP"), `{__name__="DCGM_FI_DEV_GPU_TEMP", instance="n", job="scrape"} 0=61 15=end 45=62 60=62`)
	wantLines(t, "clock", r.of("DCGM_FI_DEV_SM_CLOCK"), `{__name__="DCGM_FI_DEV_SM_CLOCK", instance="n", job="scrape"} 45=5 60=end`)
	wantLines(t, "memory temperature", r.of("DCGM_FI_DEV_MEMORY_TEMP"))
}

// Who selects a series is told of its samples and of its end, in the commit that
// has them.
func TestGrowthIsTold(t *testing.T) {
	r := newRig(t)
	var told []string
	asked := 0
	r.m.o.Watch = ingest.Watch{
		Gen: func() uint64 { return 1 },
		Rules: func(ls labels.Labels) []int32 {
			asked++
			switch ls.Get("__name__") {
			case "a":
				return []int32{4}
			case "up":
				return []int32{7}
			}
			return nil
		},
		Grew: func(rules []int32, newest int64) { told = append(told, fmt.Sprint(rules, (newest-base)/1000)) },
	}
	target := Target{URL: someTarget}
	r.scrape(target, 0, "a 1\nb 1\n")
	r.scrape(target, 15*second, "b 1\n")
	r.scrape(target, 30*second, "b 1\n")
	wantLines(t, "told", told, "[4 7] 0", "[4 7] 15", "[7] 30")
	if asked != 2+numReports {
		t.Errorf("asked %d times; want once a series", asked)
	}
}

// refusing is a store that takes nothing while it has an error.
type refusing struct {
	storage.Appendable
	err error
}

func (r *refusing) Appender(ctx context.Context) storage.Appender {
	app := r.Appendable.Appender(ctx)
	if r.err != nil {
		return &refusingAppender{app, r.err}
	}
	return app
}

type refusingAppender struct {
	storage.Appender
	err error
}

func (a *refusingAppender) Commit() error { return errors.Join(a.err, a.Rollback()) }

// A store that takes nothing is not the target's fault; what was not stored is
// made up for once it takes samples again.
func TestStoreThatRefuses(t *testing.T) {
	r := newRig(t)
	s := &refusing{Appendable: r.db}
	r.m.o.Store = s
	target := Target{URL: someTarget, Node: "n"}
	r.scrape(target, 0, "a 1\nb 1\n")
	s.err = errors.New("disk is nearly full")
	st := r.scrape(target, 15*second, "b 2\n")
	if !st.Up || st.Stored != 0 || st.Err != "not stored: disk is nearly full" {
		t.Errorf("%+v", st)
	}
	s.err = nil
	if st = r.scrape(target, 30*second, "b 3\n"); st.Err != "" || st.Stored != 1 {
		t.Errorf("%+v", st)
	}
	wantLines(t, "a", r.of("a"), `{__name__="a", instance="n", job="scrape"} 0=1 30=end`)
	wantLines(t, "b", r.of("b"), `{__name__="b", instance="n", job="scrape"} 0=1 30=3`)
	if got := r.said.String(); !strings.Contains(got, `msg="target is up, but its page is"`) {
		t.Errorf("said:\n%s", got)
	}
}

// Whatever a page holds, it is stored whole or not at all, no name of the
// program's comes in by it, and no series ends but by our mark.
func FuzzPage(f *testing.F) {
	for _, a := range story {
		f.Add([]byte(a.body), a.contentType)
	}
	f.Add([]byte("DCGM_FI_DEV_GPU_TEMP 2147483632\nup 1\nx NaN 5\n"), text004)
	f.Add([]byte("\x10\n\x01a\x18\x01\"\t\x12\x07\t\x00\x00\x00\x00\x00\x00"), "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		own := (&Target{URL: someTarget}).Own()
		b := newBook(own)
		rec := &recorder{refs: map[string]storage.SeriesRef{}}
		w := writer{store: rec}
		for i := range 2 {
			r := &round{at: base + int64(i), oldest: base - 1800_000, youngest: base + 60_000}
			b.read(r, body, contentType, 100)
			n := 0
			for _, sm := range r.samples {
				if sm.s.labels.Get("instance") != own.Get("instance") || sm.s.labels.Has("channel") || ingest.OwnName(sm.s.labels.Get("__name__")) {
					t.Fatalf("stored %s", sm.s.labels)
				}
				if sm.t < r.oldest || sm.t > r.youngest {
					t.Fatalf("a sample at %d", sm.t)
				}
				if !sm.ends {
					n++
				}
			}
			out, err := w.write(t.Context(), b, r, 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.err != nil {
				n = 0
			}
			if out.values != n {
				t.Fatalf("stored %d; want %d of %d", out.values, n, r.total)
			}
			for _, line := range rec.taken()[i] {
				if i == 0 && strings.HasSuffix(line, " end") {
					t.Fatalf("the first page ends %s", line)
				}
			}
		}
	})
}
