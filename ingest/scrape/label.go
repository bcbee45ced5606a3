package scrape

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// What one series may have; a page with more of it is refused as a whole, as a
// page over Prometheus's label limits is.
const (
	maxLabels     = 64
	maxName       = 256 // bytes of a metric name
	maxLabelName  = 128
	maxLabelValue = 1 << 10
	maxBuckets    = 1 << 10 // of a native histogram, each side
)

// relabel puts the target's own labels on a series of its page. What the page says
// in a label of that name, or in the label channel, is kept under the name
// exported_NAME; where the page has that too, with one more exported_ before it.
func relabel(page, own labels.Labels) labels.Labels {
	b := labels.NewBuilder(page)
	var theirs []labels.Label
	take := func(name string) {
		if v := page.Get(name); v != "" {
			theirs = append(theirs, labels.Label{Name: name, Value: v})
		}
	}
	take(channelLabel)
	b.Del(channelLabel)
	own.Range(func(l labels.Label) {
		take(l.Name)
		b.Set(l.Name, l.Value)
	})
	// The shortest first, so that the outcome does not hang on an order.
	slices.SortStableFunc(theirs, func(x, y labels.Label) int { return len(x.Name) - len(y.Name) })
	for _, l := range theirs {
		name := exported + l.Name
		for b.Get(name) != "" {
			name = exported + name
		}
		b.Set(name, l.Value)
	}
	return b.Labels()
}

// checkLabels says why a series makes its page unreadable.
func checkLabels(page, ls labels.Labels) error {
	name := ls.Get(model.MetricNameLabel)
	if twice, has := page.HasDuplicateLabelNames(); has {
		return fmt.Errorf("%s: label %s comes twice", short(name), short(twice))
	}
	switch {
	case name == "":
		return fmt.Errorf("%s: has no name", excerpt(ls.String()))
	case !ls.IsValid(model.UTF8Validation):
		return fmt.Errorf("%q: a name or a label is not valid UTF-8", excerpt(ls.String()))
	case len(name) > maxName:
		return fmt.Errorf("%s: the name has %d bytes, at most are %d", short(name), len(name), maxName)
	case ls.Len()-1 > maxLabels:
		return fmt.Errorf("%s: has %d labels, at most are %d", short(name), ls.Len()-1, maxLabels)
	}
	return ls.Validate(func(l labels.Label) error {
		switch {
		case l.Name == model.MetricNameLabel:
		case len(l.Name) > maxLabelName:
			return fmt.Errorf("%s: label %s: the name has %d bytes, at most are %d", short(name), short(l.Name), len(l.Name), maxLabelName)
		case len(l.Value) > maxLabelValue:
			return fmt.Errorf("%s: label %s: the value has %d bytes, at most are %d", short(name), short(l.Name), len(l.Value), maxLabelValue)
		}
		return nil
	})
}
