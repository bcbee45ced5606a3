package scrape

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/ingest"
)

// The defaults of a Target.
const (
	DefaultInterval    = 15 * time.Second
	DefaultTimeout     = 10 * time.Second
	DefaultSampleLimit = 50_000
	DefaultBodyLimit   = 20 << 20
)

// jobLabel and instanceLabel say whose a series is, in every Prometheus.
const (
	jobLabel      = "job"
	instanceLabel = "instance"
	channelLabel  = "channel"   // provenance of a workload's series (decisions.md X26)
	exported      = "exported_" // before a label of the page that is the target's own
)

// Target is one page to read. The zero value of each field but URL means its
// default.
type Target struct {
	URL string // as ParseURL returns it
	// Interval is the time between two scrapes; Timeout is how long one may take,
	// DefaultTimeout or the interval, whichever is shorter.
	Interval, Timeout time.Duration
	// Node, where it is given, is the value of the label instance; otherwise that
	// is the host and port of the URL.
	Node string
	// Labels are set on each series, the label job with the default "scrape"
	// among them.
	Labels map[string]string
	// SampleLimit and BodyLimit bound a page, in samples and in bytes after
	// decompression. What has more is refused as a whole.
	SampleLimit int
	BodyLimit   int64
	// HTTP names a file with credentials, CA and headers (httpfile), "" for none.
	HTTP string
}

// ParseURL completes and checks the address of a page: http or https, without
// credentials, and with the path /metrics where it names none.
func ParseURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@") && (err != nil || u.User != nil):
		return "", errors.New("credentials in a URL would show in logs and in status; put them as basic_auth into a file that the key http names")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("%q is no address of a page; write it like http://127.0.0.1:9100/metrics", excerpt(s))
	case u.Fragment != "":
		return "", fmt.Errorf("%q: a page has no #%s", excerpt(s), u.Fragment)
	}
	if u.Path == "" {
		u.Path = "/metrics"
	}
	return u.String(), nil
}

// CheckLabel says what is wrong with a label of a target.
func CheckLabel(name, value string) error {
	switch {
	case !model.LegacyValidation.IsValidLabelName(name):
		return fmt.Errorf("%q is no name of a label: want letters, digits and _", excerpt(name))
	case strings.HasPrefix(name, "__"):
		return fmt.Errorf("%s: names that begin with __ are Prometheus's own", name)
	case name == channelLabel:
		return errors.New("channel: says which workload a series is of, and a target is none")
	case name == instanceLabel:
		return errors.New("instance: is set by node, or is the host and port of url")
	case value == "":
		return fmt.Errorf("%s: an empty value is no label", name)
	case !model.LabelValue(value).IsValid() || len(name) > maxLabelName || len(value) > maxLabelValue:
		return fmt.Errorf("%s: want UTF-8, at most %d bytes of name and %d of value", name, maxLabelName, maxLabelValue)
	}
	return nil
}

// Check says what cannot be told from one field alone, and what is missing.
func (t *Target) Check() error {
	d := t.withDefaults()
	switch {
	case t.URL == "":
		return errors.New("has no url")
	case d.Interval < 100*time.Millisecond:
		return ingest.InKey("interval", "interval %s: at least 100ms", d.Interval)
	case d.Timeout > d.Interval:
		return ingest.InKey("timeout", "timeout %s is longer than the interval %s", d.Timeout, d.Interval)
	case d.SampleLimit < 0, d.BodyLimit < 0:
		return errors.New("a limit is below 0")
	case len(d.Labels) > maxLabels/2:
		return ingest.InKey("labels", "%d labels: at most %d", len(d.Labels), maxLabels/2)
	}
	if _, err := ParseURL(t.URL); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		if err := CheckLabel(name, t.Labels[name]); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
	}
	return nil
}

func (t Target) withDefaults() Target {
	t.Interval = cmp.Or(t.Interval, DefaultInterval)
	t.Timeout = cmp.Or(t.Timeout, min(DefaultTimeout, t.Interval))
	t.SampleLimit = cmp.Or(t.SampleLimit, DefaultSampleLimit)
	t.BodyLimit = cmp.Or(t.BodyLimit, DefaultBodyLimit)
	return t
}

// Own are the labels that the target sets on each series of its page. Two targets
// must differ in them, or their series would be one.
func (t *Target) Own() labels.Labels {
	own := map[string]string{jobLabel: "scrape", instanceLabel: t.Node}
	if u, err := url.Parse(t.URL); err == nil && t.Node == "" {
		own[instanceLabel] = u.Host
	}
	maps.Copy(own, t.Labels)
	return labels.FromMap(own)
}

func (t *Target) equal(o *Target) bool {
	return t.URL == o.URL && t.Interval == o.Interval && t.Timeout == o.Timeout && t.Node == o.Node &&
		t.SampleLimit == o.SampleLimit && t.BodyLimit == o.BodyLimit && t.HTTP == o.HTTP && maps.Equal(t.Labels, o.Labels)
}

// excerpt is the head of a text that others wrote, and short less of it.
func excerpt(s string) string { return head(s, 200) }
func short(s string) string   { return head(s, 64) }

func head(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "..."
	}
	return s
}
