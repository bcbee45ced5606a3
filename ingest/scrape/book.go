package scrape

import (
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/ingest"
)

// book is what is known of the series of one target.
type book struct {
	own    labels.Labels
	scrape uint64             // number of the scrape at hand, from 1
	byText map[string]*series // as the page writes a series
	byKey  map[string]*series // by its labels: a page may write one in several ways
	report [numReports]series
	key    []byte
}

// series is one series of a target.
type series struct {
	labels  labels.Labels
	ref     storage.SeriesRef
	touch   *ingest.Touch
	vendor  vendor
	refused bool // for its name

	born, seen uint64 // scrapes: the first and the last whose page has it
	here       uint64 // the last scrape that has a value for it without a time of its own
	t          int64  // of its last sample on that page

	// Of what was committed. live: the newest sample is a value of a scrape's own
	// time, and a mark is owed when the series ends. stamped: it is a value with a
	// time of its own. Neither: it has ended, or nothing was stored by this book.
	live, stamped bool
	asked         bool // it is known whether an earlier process has left a value of it
}

// sample is what one line of a page has for the store.
type sample struct {
	s         *series
	t         int64
	v         float64
	h         *histogram.Histogram
	fh        *histogram.FloatHistogram
	stamped   bool // t was on the page
	ends      bool // v is the mark that ends the series
	exemplars []exemplar.Exemplar
}

// The series that are written of each scrape, beside those of its page.
const (
	reportUp = iota
	reportDuration
	reportScraped
	reportKept
	reportAdded
	numReports
)

var reportNames = [numReports]string{
	"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_series_added",
}

func newBook(own labels.Labels) *book {
	b := &book{own: own, byText: map[string]*series{}, byKey: map[string]*series{}}
	for i := range b.report {
		b.report[i].labels = labels.NewBuilder(own).Set(model.MetricNameLabel, reportNames[i]).Labels()
	}
	return b
}

// lookup is the series that the page writes like that, nil when it is new.
func (b *book) lookup(text []byte) *series { return b.byText[string(text)] }

// add makes the series, or finds that it is there under another text.
func (b *book) add(text []byte, page labels.Labels) (*series, error) {
	ls := relabel(page, b.own)
	if err := checkLabels(page, ls); err != nil {
		return nil, err
	}
	b.key = ls.Bytes(b.key[:0])
	s := b.byKey[string(b.key)]
	if s == nil {
		s = &series{labels: ls, vendor: vendorOf(ls), refused: ingest.OwnName(ls.Get(model.MetricNameLabel)), born: b.scrape}
		b.byKey[string(b.key)] = s
	}
	b.byText[string(text)] = s
	return s, nil
}

// ended lists the live series that the scrape at hand has no value for; all of
// them after one that failed.
func (b *book) ended(failed bool) []*series {
	var out []*series
	for _, s := range b.byKey {
		if s.live && (failed || s.here != b.scrape) {
			out = append(out, s)
		}
	}
	return out
}

// tidy forgets, once a scrape is stored, the series that its page has no more, or,
// if it failed, those that nobody has met before it.
func (b *book) tidy(failed bool) {
	drop := func(s *series) bool {
		if failed {
			return s.born == b.scrape
		}
		return s.seen != b.scrape
	}
	for text, s := range b.byText {
		if drop(s) {
			delete(b.byText, text)
		}
	}
	for key, s := range b.byKey {
		if drop(s) {
			delete(b.byKey, key)
		}
	}
}
