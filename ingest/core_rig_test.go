package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

// base is T0 of the cases, in Unix milliseconds.
const base = 1760000000_000

// bed is a receiver over a real TSDB, with a clock that the test sets.
type bed struct {
	t   *testing.T
	db  *tsdb.DB
	mem *memStore // in place of db
	r   *Receiver
	now int64
}

func newBed(t *testing.T, change func(*Options)) *bed {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = (30 * time.Minute).Milliseconds()
	o.RetentionDuration = 0
	o.StripeSize = 64
	o.WALSegmentSize = -1 // no log: what is here dies with the test
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, db: db, now: base}
	t.Cleanup(b.close)
	options := Options{Appendable: db, Queryable: db, Clock: func() time.Time { return time.UnixMilli(b.now) }}
	if change != nil {
		change(&options)
	}
	b.r = NewReceiver(options)
	return b
}

// close may be called before the test ends.
func (b *bed) close() {
	if b.db == nil {
		return
	}
	if err := b.db.Close(); err != nil {
		b.t.Error(err)
	}
	b.db = nil
}

// at moves the clock to T0 + seconds.
func (b *bed) at(seconds float64) { b.now = base + int64(seconds*1000) }

// export sends a request that must not fail as a whole.
func (b *bed) export(md pmetric.Metrics) Result {
	b.t.Helper()
	res, err := b.r.Export(context.Background(), wireOf(b.t, md))
	if err != nil {
		b.t.Fatalf("Export: %v", err)
	}
	return res
}

func wireOf(t testing.TB, md pmetric.Metrics) []byte {
	wire, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// tv is one stored sample.
type tv struct {
	t int64
	v float64
}

// stored reads every sample back, by the text of the labels.
func (b *bed) stored() map[string][]tv {
	b.t.Helper()
	if b.mem != nil {
		return b.mem.stored(b.t)
	}
	return readAll(b.t, b.db, math.MinInt64, math.MaxInt64)
}

// sampleAt gives a sample as a number, a native histogram as its print.
func sampleAt(it chunkenc.Iterator, typ chunkenc.ValueType) (int64, float64) {
	if typ == chunkenc.ValFloat {
		return it.At()
	}
	t, f := it.AtFloatHistogram(nil)
	return t, printOf(f)
}

func readAll(t testing.TB, db storage.Queryable, mint, maxt int64) map[string][]tv {
	q, err := db.Querier(mint, maxt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	all := map[string][]tv{}
	set := q.Select(context.Background(), false, nil,
		labels.MustNewMatcher(labels.MatchRegexp, metricLabel, ".+"))
	for set.Next() {
		s := set.At()
		it := s.Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			ts, v := sampleAt(it, typ)
			all[s.Labels().String()] = append(all[s.Labels().String()], tv{ts, v})
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return all
}

// values lists what one series holds; labels is its text.
func (b *bed) values(labels string) []tv { return b.stored()[labels] }

// check compares one series, by bits.
func (b *bed) check(labels string, want ...tv) {
	b.t.Helper()
	got := b.values(labels)
	if !slices.EqualFunc(got, want, func(a, b tv) bool { return a.t == b.t && sameValue(a.v, b.v) }) {
		b.t.Errorf("%s holds %v; want %v", labels, got, want)
	}
}

// payload builds requests: one resource, one scope, metrics one after another.
type payload struct {
	md pmetric.Metrics
	sm pmetric.ScopeMetrics
}

// newPayload begins with a resource of the given attributes, name and value in
// turn.
func newPayload(attrs ...string) *payload {
	p := &payload{md: pmetric.NewMetrics()}
	p.resource(attrs...)
	return p
}

func (p *payload) resource(attrs ...string) {
	rm := p.md.ResourceMetrics().AppendEmpty()
	put(rm.Resource().Attributes(), attrs)
	p.sm = rm.ScopeMetrics().AppendEmpty()
}

func put(m pcommon.Map, attrs []string) {
	for i := 0; i < len(attrs); i += 2 {
		m.PutStr(attrs[i], attrs[i+1])
	}
}

func (p *payload) metric(name, unit string) pmetric.Metric {
	m := p.sm.Metrics().AppendEmpty()
	m.SetName(name)
	m.SetUnit(unit)
	return m
}

// gauge adds one point at base + ms.
func (p *payload) gauge(name, unit string, ms int64, v float64, attrs ...string) pmetric.NumberDataPoint {
	dp := p.metric(name, unit).SetEmptyGauge().DataPoints().AppendEmpty()
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.SetDoubleValue(v)
	put(dp.Attributes(), attrs)
	return dp
}

// sum adds one monotonic point.
func (p *payload) sum(name, unit string, temporality pmetric.AggregationTemporality, start, ms int64, v float64, attrs ...string) pmetric.NumberDataPoint {
	s := p.metric(name, unit).SetEmptySum()
	s.SetAggregationTemporality(temporality)
	s.SetIsMonotonic(true)
	dp := s.DataPoints().AppendEmpty()
	dp.SetStartTimestamp(pcommon.Timestamp((base + start) * 1e6))
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.SetDoubleValue(v)
	put(dp.Attributes(), attrs)
	return dp
}

const delta, cumulative = pmetric.AggregationTemporalityDelta, pmetric.AggregationTemporalityCumulative

// checkResult compares the counts.
func checkResult(t testing.TB, got Result, accepted, folded int64, reasons map[string]int64) {
	t.Helper()
	var rejected int64
	for _, n := range reasons {
		rejected += n
	}
	gotReasons, _ := json.Marshal(got.ByReason)
	wantReasons, _ := json.Marshal(reasons)
	if got.Accepted != accepted || got.Folded != folded || got.Rejected != rejected ||
		len(reasons) > 0 && string(gotReasons) != string(wantReasons) {
		t.Errorf("accepted %d, folded %d, rejected %d %s (%s); want %d, %d, %d %s",
			got.Accepted, got.Folded, got.Rejected, gotReasons, got.Message, accepted, folded, rejected, wantReasons)
	}
	if (got.Message != "") != (got.Rejected > 0) {
		t.Errorf("message %q for %d rejected", got.Message, got.Rejected)
	}
}

func wantDecodeError(t *testing.T, err error) {
	t.Helper()
	var de *DecodeError
	if !errors.As(err, &de) {
		t.Errorf("got %v; want a *DecodeError", err)
	}
}

// appendField appends a length-delimited field.
func appendField(b []byte, num int, data []byte) []byte {
	b = protowire.AppendTag(b, protowire.Number(num), protowire.BytesType)
	return protowire.AppendBytes(b, data)
}

// fieldOf returns the first field of that number.
func fieldOf(b []byte, num uint32) []byte {
	for f := (fields{b: b}); f.next(); {
		if f.num == num {
			return f.data
		}
	}
	return nil
}

func stringAttribute(key, value string) []byte {
	return appendField(appendField(nil, 1, []byte(key)), 2, appendField(nil, 1, []byte(value)))
}
