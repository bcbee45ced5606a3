package ingest

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// What goes wrong silently on the way from wire bytes to a series reference, the
// guard against it, and the test that fails without the guard:
//
//	field order                     two passes a level           TestHazardFieldOrder, TestOracle
//	stale ref after head truncation labels go with every ref     TestHazardStaleRef
//	valid ref with wrong labels     one owner, epoch             TestHazardForeignRef
//	attribute order, duplicates     one series; bounded, swept   TestAttributeOrder, TestHazardDuplicateAttributes, TestCacheIsBounded
//	scattered attributes            scratch copy                 TestHazardScatteredAttributes
//	partial failure                 counted by reason, goes on   TestTooOldForTheStore, TestTooOldPointInBatchC05
//	rollback                        refs void after a failure    TestHazardRollback, TestStoreErrors
//	NoRecordedValue                 flags, bit 0                 TestStaleness, TestNoRecordedValueC06
//	zero time on one point          time gate first              TestHazardZeroTime, TestTimeGate
//	target_info                     on change, half the lookback TestTargetInfo

const cpu1 = `{__name__="hw_power_watts", hw_id="cpu1", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`

// A sender may write the resource behind the metrics and the name behind the
// points: no label is lost, and both forms are one series.
func TestHazardFieldOrder(t *testing.T) {
	b := newBed(t, nil)
	for i, order := range []func(int) []int{ascending, descending} {
		p := newPayload(node...)
		p.gauge("hw.power", "W", int64(i)*1000, float64(i), "hw.id", "cpu0")
		wire := reorder(wireOf(t, p.md), "request", order)
		if i == 1 && slices.Equal(wire, wireOf(t, p.md)) {
			t.Fatal("the order was not turned")
		}
		res, err := b.r.Export(context.Background(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, nil)
	}
	b.check(watts, tv{base, 0}, tv{base + 1000, 1})
}

// The store may let go of a series whose reference is remembered here; what comes
// next makes it anew under the same labels, also when the number is another's now.
func TestHazardStaleRef(t *testing.T) {
	b := newBed(t, nil)
	send := func(ms int64, ids ...string) {
		t.Helper()
		p := newPayload(node...)
		for _, id := range ids {
			p.gauge("hw.power", "W", ms, float64(ms), "hw.id", id)
		}
		checkResult(t, b.export(p.md), int64(len(ids)), 0, nil)
	}
	send(0, "cpu0", "cpu1")
	before := b.refs()
	if err := b.db.Head().Truncate(base + 10_000); err != nil {
		t.Fatal(err)
	}
	if n := b.db.Head().NumSeries(); n != 0 {
		t.Fatalf("%d series after the truncation; want none", n)
	}
	b.at(20)
	send(20_000, "cpu1", "cpu0")
	send(21_000, "cpu0", "cpu1")
	b.check(watts, tv{base + 20_000, 20_000}, tv{base + 21_000, 21_000})
	b.check(cpu1, tv{base + 20_000, 20_000}, tv{base + 21_000, 21_000})
	for labels, ref := range b.refs() {
		if ref == before[labels] && !strings.Contains(labels, targetInfoName) { // which is not due yet
			t.Errorf("%s has reference %d still", labels, ref)
		}
	}
}

func (b *bed) refs() map[string]storage.SeriesRef {
	out := map[string]storage.SeriesRef{}
	for _, s := range b.r.w.cache.series {
		out[s.labels.String()] = s.ref
	}
	return out
}

// swapped is a store that was opened anew, on another folder: its references are
// the same numbers, of other series.
type swapped struct{ storage.Appendable }

func TestHazardForeignRef(t *testing.T) {
	other := newBed(t, nil)
	var at swapped
	b := newBed(t, func(o *Options) {
		at.Appendable = o.Appendable
		o.Appendable = &at
	})
	send := func(ms int64, ids ...string) {
		t.Helper()
		p := newPayload()
		for _, id := range ids {
			p.gauge("hw.power", "W", ms, float64(len(id)), "hw.id", id)
		}
		checkResult(t, b.export(p.md), int64(len(ids)), 0, nil)
	}
	send(0, "a", "bb")
	at.Appendable = other.db
	b.r.o.Queryable = other.db
	b.r.forget()
	send(1000, "bb", "a")
	other.check(`{__name__="hw_power_watts", hw_id="a"}`, tv{base + 1000, 1})
	other.check(`{__name__="hw_power_watts", hw_id="bb"}`, tv{base + 1000, 2})
}

// A key twice in one point is refused alone, in whatever order and however often
// it comes; it costs an entry, and no series.
func TestHazardDuplicateAttributes(t *testing.T) {
	b := newBed(t, nil)
	for range 2 {
		for _, ids := range [][]string{{"cpu0", "cpu1"}, {"cpu1", "cpu0"}} {
			p := newPayload(node...)
			dp := p.gauge("hw.power", "W", 0, 1, "hw.id", ids[0], "hw_id", ids[1])
			if dp.Attributes().Len() != 2 {
				t.Fatal("the attributes were joined")
			}
			p.gauge("hw.power", "W", 0, 2, "hw.id", "cpu0")
			checkResult(t, b.export(p.md), 1, 0, map[string]int64{"label_collision": 1})
		}
	}
	b.check(watts, tv{base, 2})
	if n := b.r.w.cache.nSeries; n != 2 { // and target_info
		t.Errorf("%d series are known; want 2", n)
	}
}

// Protobuf lets the attributes of a point stand apart, with its other fields
// between: they are one set, when the stream is new and when it is known.
func TestHazardScatteredAttributes(t *testing.T) {
	b := newBed(t, nil)
	kv := func(key, value string) []byte {
		return appendField(nil, 7, appendField(appendField(nil, 1, []byte(key)), 2, appendField(nil, 1, []byte(value))))
	}
	for i := range 3 {
		var point []byte
		point = append(point, kv("hw.type", "cpu")...)
		point = append(point, fixed64(3, uint64(base+int64(i)*1000)*1e6)...)
		point = append(point, kv("hw.id", "cpu0")...)
		point = append(point, fixed64(4, math.Float64bits(float64(i)))...)
		point = append(point, kv("z", "1")...)
		metric := appendField(appendField(nil, 1, []byte("hw.power")), 5, appendField(nil, 1, point))
		wire := appendField(nil, 1, appendField(nil, 2, appendField(nil, 2, metric)))
		res, err := b.r.Export(context.Background(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, nil)
	}
	b.check(`{__name__="hw_power", hw_id="cpu0", hw_type="cpu", z="1"}`, tv{base, 0}, tv{base + 1000, 1}, tv{base + 2000, 2})
}

func fixed64(num byte, v uint64) []byte {
	out := []byte{num<<3 | wireFixed8}
	for i := range 8 {
		out = append(out, byte(v>>(8*i)))
	}
	return out
}

// References that a request got are void when its commit fails: the store may
// have let go of the series that it made for them.
func TestHazardRollback(t *testing.T) {
	failing := &flaky{}
	b := newBed(t, func(o *Options) {
		failing.Appendable = o.Appendable
		o.Appendable = failing
	})
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	failing.commit = context.DeadlineExceeded
	if _, err := b.r.Export(context.Background(), wireOf(t, p.md)); err == nil {
		t.Fatal("the commit did not fail")
	}
	for _, s := range b.r.w.cache.series {
		if s.ref != 0 && s.epoch == b.r.w.cache.epoch {
			t.Errorf("%s: reference %d of the failed request is good still", s.labels, s.ref)
		}
	}
	failing.commit = nil
	checkResult(t, b.export(p.md), 1, 0, nil)
	b.check(watts, tv{base, 1})
}

// A point without a time is refused alone, and target_info does not begin in 1970
// for it, with and without the gate on the clock.
func TestHazardZeroTime(t *testing.T) {
	for _, off := range []bool{false, true} {
		b := newBed(t, func(o *Options) { o.NoTimeGate = off })
		p := newPayload(node...)
		p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0").SetTimestamp(pcommon.Timestamp(0))
		p.gauge("hw.power", "W", 0, 2, "hw.id", "cpu1")
		checkResult(t, b.export(p.md), 1, 0, map[string]int64{"bad_time": 1})
		b.check(cpu1, tv{base, 2})
		for labels, samples := range b.stored() {
			if len(samples) != 1 || samples[0].t != base {
				t.Errorf("%s: %v; want one sample at T0", labels, samples)
			}
		}
	}
}
