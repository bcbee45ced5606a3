package remote

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// message is what the parcel holds, as the message of that name. It fails where
// part of the queue cannot be read.
func (p *parcel) message(name remote.WriteMessageType) (any, error) {
	if name == remote.WriteV1MessageType {
		return writeRequest(p.d, p.entries), nil
	}
	return requestOf(p.d, p.entries)
}

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

// wireMessage is a message that is written already.
type wireMessage []byte

// SizeVT is its length in bytes.
func (m wireMessage) SizeVT() int { return len(m) }

// MarshalToSizedBufferVT copies it.
func (m wireMessage) MarshalToSizedBufferVT(to []byte) (int, error) { return copy(to, m), nil }

// writeRequest puts entries into one request of Remote Write 1.0, as requestOf does.
// That has every text in full, and histograms in the same bytes.
func writeRequest(d *decoder, entries []entry) wireMessage {
	var order []seriesKind
	series := map[seriesKind][]byte{}
	for i := range entries {
		e := &entries[i]
		k := seriesKind{e.series, e.kind == kindHistogram}
		if e.kind == kindExemplar && series[k] == nil && series[seriesKind{e.series, true}] != nil {
			k.histograms = true
		}
		b := series[k]
		if b == nil {
			order, b = append(order, k), appendLabels(nil, d, d.series[e.series])
		}
		switch e.kind {
		case kindSample: // field 2: value, time
			b = appendMessage(b, 2, appendPoint(nil, 1, e))
		case kindHistogram:
			b = appendMessage(b, 4, e.wire)
		case kindExemplar: // field 3: labels, value, time
			b = appendMessage(b, 3, appendPoint(appendLabels(nil, d, e.labels), 2, e))
		}
		series[k] = b
	}
	var out wireMessage
	for _, k := range order {
		out = appendMessage(out, 1, series[k])
	}
	return out
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// appendPoint writes a value as a field and the time as the next one.
func appendPoint(b []byte, field protowire.Number, e *entry) []byte {
	b = protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(e.v))
	return protowire.AppendVarint(protowire.AppendTag(b, field+1, protowire.VarintType), uint64(e.t))
}

// appendLabels writes names and values, by turns in texts, as messages of field 1.
func appendLabels(b []byte, d *decoder, texts []int) []byte {
	for i := 0; i+1 < len(texts); i += 2 {
		var l []byte
		for j := range 2 {
			l = appendMessage(l, protowire.Number(j+1), []byte(d.texts[texts[i+j]]))
		}
		b = appendMessage(b, 1, l)
	}
	return b
}
