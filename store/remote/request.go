package remote

import (
	"fmt"

	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
)

// requestOf puts entries into one request: a series once, its samples in the order
// in which they were stored. A series that has samples and histograms stands there
// twice, since a message may hold one kind alone.
func requestOf(d *decoder, entries []entry) (*writev2.Request, error) {
	b := builder{d: d, symbols: writev2.NewSymbolTable(), refs: map[int]uint32{}, at: map[seriesKind]*writev2.TimeSeries{}}
	req := &writev2.Request{}
	for i := range entries {
		e := &entries[i]
		ts := b.at[seriesKind{e.series, e.kind == kindHistogram}]
		if ts == nil && e.kind == kindExemplar { // beside whatever its series has here
			ts = b.at[seriesKind{e.series, true}]
		}
		if ts == nil {
			ts = &writev2.TimeSeries{LabelsRefs: b.labels(d.series[e.series])}
			b.at[seriesKind{e.series, e.kind == kindHistogram}] = ts
			req.Timeseries = append(req.Timeseries, ts)
		}
		switch e.kind {
		case kindSample:
			ts.Samples = append(ts.Samples, &writev2.Sample{Value: e.v, Timestamp: e.t})
		case kindHistogram:
			h := &writev2.Histogram{}
			if err := h.UnmarshalVT(e.wire); err != nil {
				return nil, fmt.Errorf("%w: %w", errEntry, err)
			}
			ts.Histograms = append(ts.Histograms, h)
		case kindExemplar:
			ts.Exemplars = append(ts.Exemplars, &writev2.Exemplar{LabelsRefs: b.labels(e.labels), Value: e.v, Timestamp: e.t})
		}
	}
	req.Symbols = b.symbols.Symbols()
	return req, nil
}

type seriesKind struct {
	series     int
	histograms bool
}

type builder struct {
	d       *decoder
	symbols writev2.SymbolsTable
	refs    map[int]uint32 // by number of the text in its file
	at      map[seriesKind]*writev2.TimeSeries
}

func (b *builder) labels(texts []int) []uint32 {
	out := make([]uint32, len(texts))
	for i, n := range texts {
		ref, known := b.refs[n]
		if !known {
			ref = b.symbols.Symbolize(b.d.texts[n])
			b.refs[n] = ref
		}
		out[i] = ref
	}
	return out
}
