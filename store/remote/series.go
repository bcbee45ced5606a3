package remote

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// series is one series as it was read, its chunks oldest first.
type series struct {
	labels labels.Labels
	chunks []chunkenc.Chunk
}

// answer is what one request brought. It is not changed any more.
type answer struct {
	series     []series // sorted by labels
	start, end int64    // of what was asked for, Unix milliseconds, both included
}

func (a *answer) sort() {
	slices.SortFunc(a.series, func(x, y series) int { return labels.Compare(x.labels, y.labels) })
}

// set walks an answer once.
type set struct {
	of *answer
	at int
}

var _ storage.SeriesSet = (*set)(nil)

func (s *set) Next() bool                      { s.at++; return s.at <= len(s.of.series) }
func (s *set) At() storage.Series              { return bounded{&s.of.series[s.at-1], s.of} }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

// bounded is a series within what was asked for.
type bounded struct {
	*series
	of *answer
}

func (b bounded) Labels() labels.Labels { return b.labels }

func (b bounded) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	p, ok := it.(*points)
	if !ok {
		p = &points{}
	}
	*p = points{chunks: b.chunks, inner: p.inner, start: b.of.start, end: b.of.end, last: b.of.start - 1}
	return p
}

// points iterates over chunks. They may overlap, and reach beyond what was asked
// for: of two samples of one time the first counts, and time never goes back.
type points struct {
	chunks     []chunkenc.Chunk
	inner      chunkenc.Iterator // of the chunk before chunks; kept for its memory
	open, done bool
	vt         chunkenc.ValueType
	start, end int64
	last       int64
	err        error
}

func (p *points) Next() chunkenc.ValueType {
	for !p.done {
		if !p.open {
			if len(p.chunks) == 0 {
				break
			}
			p.inner, p.open, p.chunks = p.chunks[0].Iterator(p.inner), true, p.chunks[1:]
		}
		vt := p.inner.Next()
		if vt == chunkenc.ValNone {
			if p.err = p.inner.Err(); p.err != nil {
				break
			}
			p.open = false
			continue
		}
		if t := p.inner.AtT(); t > p.last && t <= p.end {
			p.last, p.vt = t, vt
			return vt
		}
	}
	p.done, p.vt = true, chunkenc.ValNone
	return chunkenc.ValNone
}

// millis are Unix milliseconds. The name is for vet, which takes any Seek(int64)
// for a wrong io.Seeker.
type millis = int64

func (p *points) Seek(t millis) chunkenc.ValueType {
	if p.vt != chunkenc.ValNone && p.last >= t {
		return p.vt
	}
	for {
		if vt := p.Next(); vt == chunkenc.ValNone || p.last >= t {
			return vt
		}
	}
}

func (p *points) At() (int64, float64) { return p.inner.At() }
func (p *points) AtHistogram(h *histogram.Histogram) (int64, *histogram.Histogram) {
	return p.inner.AtHistogram(h)
}
func (p *points) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return p.inner.AtFloatHistogram(h)
}
func (p *points) AtT() int64  { return p.last }
func (p *points) AtST() int64 { return p.inner.AtST() }
func (p *points) Err() error  { return p.err }
