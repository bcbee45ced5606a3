package scrape

import (
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
)

// round is one scrape that was read and is not stored yet.
type round struct {
	at      int64 // Unix milliseconds, the time of all samples without their own
	err     error // why nothing of the page may be stored
	samples []sample
	unsure  []*series // blank ones, of which an earlier process may have left a value

	total, kept, added int // samples on the page; those whose name is taken; series that are new
	not                [numReasons]int
	example            [numReasons]string
	oldest, youngest   int64 // times that a page may give

	times map[seriesTime]struct{} // of series that come more than once
}

type seriesTime struct {
	s *series
	t int64
}

func (r *round) refuse(why reason, s *series, v float64) {
	if r.not[why] == 0 {
		r.example[why] = excerpt(s.labels.String()) + fmt.Sprintf(" %v", v)
	}
	r.not[why]++
}

// plain is the text format that a page without a usable type is taken for.
const plain = "text/plain"

// pageType is the Content-Type to read a page by. One that is missing, or says no
// more than that there are bytes, is the plain text format: a script's web server
// knows no better. Another format is an error, not a page with a strange syntax.
func pageType(header string) (string, error) {
	media, _, err := mime.ParseMediaType(header)
	switch {
	case header == "", err != nil, media == "application/octet-stream", media == "binary/octet-stream":
		return plain, nil
	case media == plain, media == "application/openmetrics-text", media == "application/vnd.google.protobuf":
		return header, nil
	}
	return "", fmt.Errorf("answers %s, which is no page of metrics; is the path right?", excerpt(media))
}

// read takes a page into r, or says in r.err why none of it may be stored. The
// empty page is one without samples.
func (b *book) read(r *round, body []byte, contentType string, sampleLimit int) {
	b.scrape++
	if r.err != nil || len(body) == 0 {
		return
	}
	contentType, r.err = pageType(contentType)
	if r.err != nil {
		return
	}
	p, err := textparse.New(body, contentType, nil, textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true, FallbackContentType: plain})
	if p == nil {
		r.err = fmt.Errorf("page: %w", err)
		return
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		read := r.total
		if err == nil && (entry == textparse.EntrySeries || entry == textparse.EntryHistogram) {
			r.total++
			if r.total > sampleLimit {
				r.kept++ // the counts are reported
				continue
			}
			err = b.take(r, p, entry == textparse.EntryHistogram)
		}
		if err != nil {
			r.err = fmt.Errorf("page: sample %d: %s", read+1, excerpt(err.Error()))
			return
		}
	}
	if r.total > sampleLimit {
		r.err = fmt.Errorf("page: %d samples, at most are %d (sample_limit)", r.total, sampleLimit)
	}
}

// take reads the sample that the parser stands at. An error is one of the page.
func (b *book) take(r *round, p textparse.Parser, isHistogram bool) error {
	sm := sample{t: r.at}
	var text []byte
	var t *int64
	if isHistogram {
		text, t, sm.h, sm.fh = p.Histogram()
	} else {
		text, t, sm.v = p.Series()
	}
	if t != nil {
		sm.t, sm.stamped = *t, true
	}
	s := b.lookup(text)
	if s == nil {
		var page labels.Labels
		p.Labels(&page)
		var err error
		if s, err = b.add(text, page); err != nil {
			return err
		}
	}
	sm.s = s
	if s.refused {
		s.seen = b.scrape
		r.refuse(reservedName, s, sm.v)
		return nil
	}
	r.kept++
	if err := sm.clean(); err != nil {
		return fmt.Errorf("%s: %w", short(s.labels.Get(model.MetricNameLabel)), err)
	}
	fresh := s.born == b.scrape && s.seen != b.scrape
	if b.place(r, &sm) {
		if fresh {
			r.added++
		}
		r.samples[len(r.samples)-1].exemplars = exemplarsOf(p, sm.t, isHistogram)
	}
	return nil
}

// place puts the sample into the round, or counts why not.
func (b *book) place(r *round, sm *sample) bool {
	s := sm.s
	again, before := s.seen == b.scrape, s.t
	s.seen, s.t = b.scrape, sm.t
	why := fine
	if sm.h == nil && sm.fh == nil {
		why = s.vendor.blank(sm.v)
	}
	switch {
	case sm.stamped && sm.t > r.youngest:
		why = future
	case sm.stamped && sm.t < r.oldest:
		why = tooOld
	case again && r.twice(sm, before):
		why = duplicate
	case why != fine:
		r.gap(sm)
	default:
		if !sm.stamped {
			s.here = b.scrape
		}
		r.samples = append(r.samples, *sm)
		return true
	}
	r.refuse(why, s, sm.v)
	return false
}

// twice reports whether the page has a sample of the series for that time already;
// before is the time of the last one. Only with times of their own may there be
// several.
func (r *round) twice(sm *sample, before int64) bool {
	if !sm.stamped {
		return true
	}
	if r.times == nil {
		r.times = map[seriesTime]struct{}{}
	}
	r.times[seriesTime{sm.s, before}] = struct{}{}
	_, twice := r.times[seriesTime{sm.s, sm.t}]
	return twice
}

// gap ends a series whose exporter says that it has no value: without the mark a
// query would go on with the last one. Of one that is live the book knows itself.
func (r *round) gap(sm *sample) {
	s := sm.s
	switch {
	case s.stamped && sm.stamped:
		r.samples = append(r.samples, sample{s: s, t: sm.t, v: ending(), stamped: true, ends: true})
	case !s.live && !s.stamped && !s.asked:
		r.unsure = append(r.unsure, s)
	}
}

// ending is the value by which Prometheus marks the end of a series.
func ending() float64 { return math.Float64frombits(value.StaleNaN) }

// clean takes care that no page can write that mark, and refuses histograms that
// the store would refuse with everything beside them.
func (sm *sample) clean() error {
	number := func(v float64) float64 {
		if math.IsNaN(v) {
			return math.Float64frombits(value.NormalNaN)
		}
		return v
	}
	buckets := 0
	switch {
	case sm.h != nil:
		sm.h.Sum = number(sm.h.Sum)
		buckets = max(len(sm.h.PositiveBuckets), len(sm.h.NegativeBuckets))
	case sm.fh != nil:
		sm.fh.Sum = number(sm.fh.Sum)
		buckets = max(len(sm.fh.PositiveBuckets), len(sm.fh.NegativeBuckets))
	default:
		sm.v = number(sm.v)
	}
	if buckets > maxBuckets {
		return fmt.Errorf("a histogram of %d buckets, at most are %d", buckets, maxBuckets)
	}
	return validate(sm.h, sm.fh)
}

func validate(h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	switch {
	case h != nil:
		return h.Validate()
	case fh != nil:
		return fh.Validate()
	}
	return nil
}

// exemplarsOf reads the exemplars of a sample. One of a native histogram needs a
// time of its own, or a repetition could not be told from a new one.
func exemplarsOf(p textparse.Parser, t int64, isHistogram bool) []exemplar.Exemplar {
	var out []exemplar.Exemplar
	for {
		var e exemplar.Exemplar
		if !p.Exemplar(&e) {
			break
		}
		if !e.HasTs {
			if isHistogram {
				continue
			}
			e.Ts = t
		}
		out = append(out, e)
	}
	slices.SortFunc(out, exemplar.Compare)
	return out
}
