package ingest

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/labels"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Bounds on the names and labels of one series, from reliability.md section 2.
// Over them a point is refused: a shortened label would join two series.
const (
	maxLabels     = 64
	maxLabelName  = 128
	maxLabelValue = 1024
	maxMetricName = 256
)

// metricLabel is the label that holds the name of the metric.
const metricLabel = "__name__"

// Naming is a way to translate the names of metrics and attributes: one of those
// that Prometheus calls translation strategies.
type Naming = otlptranslator.TranslationStrategyOption

// Namings are all there are, the default first (S0-152).
func Namings() []Naming {
	return []Naming{
		otlptranslator.UnderscoreEscapingWithSuffixes, otlptranslator.UnderscoreEscapingWithoutSuffixes,
		otlptranslator.NoUTF8EscapingWithSuffixes, otlptranslator.NoTranslation,
	}
}

// DefaultPromote are the resource attributes that become labels of each series
// (S0-151).
func DefaultPromote() []string { return []string{"k8s.node.name", "host.name"} }

// naming translates names as Prometheus does with its default settings, but for the
// strategy.
type naming struct {
	metric  otlptranslator.MetricNamer
	label   otlptranslator.LabelNamer
	promote map[string]bool
	node    string // label of k8s.node.name
	// identity are the resource attributes that must not be given twice.
	identity map[string]bool
}

func newNaming(o *Options) naming {
	n := naming{
		metric: otlptranslator.NewMetricNamer("", o.Naming),
		// Prometheus's defaults (config.DefaultOTLPConfig). The first field is
		// deprecated in the library and still what a default Prometheus sets.
		label: otlptranslator.LabelNamer{
			UTF8Allowed: !o.Naming.ShouldEscape(),
			//lint:ignore SA1019 see above
			UnderscoreLabelSanitization: true,
			PreserveMultipleUnderscores: true,
		},
		promote:  make(map[string]bool),
		identity: map[string]bool{serviceName: true, serviceNamespace: true, serviceInstance: true},
	}
	n.node, _ = n.label.Build(attrNode)
	for _, key := range o.Promote {
		n.promote[key], n.identity[key] = true, true
	}
	return n
}

const (
	serviceName      = "service.name"
	serviceNamespace = "service.namespace"
	serviceInstance  = "service.instance.id"
	containerName    = "container.name"
)

// labelName gives the stored name of an attribute. The label that says where a
// series came from is ours, so theirs moves aside (decisions.md X26).
func (n *naming) labelName(key string) (string, reason) {
	name, err := n.label.Build(key)
	switch {
	case err != nil:
		return "", badLabel
	case name == metricLabel:
		return "", labelCollision
	case len(name) > maxLabelName:
		return "", labelLimit
	case name == channelLabel:
		return "exported_channel", fine
	}
	return name, fine
}

// channelLabel says through which workload channel a series came in.
const channelLabel = "channel"

// attribute is one key and its value as text.
type attribute struct {
	key, value string
	scalar     bool
}

// attributes reads the KeyValue fields numbered num of a message that scan has
// passed.
func attributes(b []byte, num uint32) []attribute {
	var list []attribute
	for f := (fields{b: b}); f.next(); {
		if f.num == num && f.typ == wireBytes {
			list = append(list, keyValue(f.data))
		}
	}
	return list
}

func keyValue(b []byte) attribute {
	a := attribute{scalar: true}
	for f := (fields{b: b}); f.next(); {
		switch f.num {
		case 1:
			a.key = string(f.data)
		case 2:
			if value, scalar, set := anyValue(f.data); set {
				a.value, a.scalar = value, scalar
			}
		}
	}
	return a
}

// anyValue gives a value as text, written as pdata writes it. Lists and maps have
// none: to write one out would recurse, and no label holds one.
func anyValue(b []byte) (value string, scalar, set bool) {
	scalar = true
	for f := (fields{b: b}); f.next(); {
		switch f.num {
		case 1:
			value, scalar, set = string(f.data), true, true
		case 2:
			value, scalar, set = strconv.FormatBool(f.val != 0), true, true
		case 3:
			value, scalar, set = strconv.FormatInt(int64(f.val), 10), true, true
		case 4:
			d := pcommon.NewValueDouble(math.Float64frombits(f.val))
			value, scalar, set = d.AsString(), true, true
		case 5, 6:
			value, scalar, set = "", false, true
		case 7:
			value, scalar, set = base64.StdEncoding.EncodeToString(f.data), true, true
		}
	}
	return value, scalar, set
}

// validText reports whether s is UTF-8.
func validText(s string) bool { return utf8.ValidString(s) }

// plain reports whether s is fit to be shown: no control character, and none
// that turns the direction of the text around it.
func plain(s string) bool {
	for _, c := range s {
		switch {
		case c < 0x20, c >= 0x7f && c < 0xa0,
			c == 0x061c, c == 0x200e, c == 0x200f,
			c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069:
			return false
		}
	}
	return true
}

// unfit says why a text cannot be the value of a label.
func unfit(value string) reason {
	switch {
	case len(value) > maxLabelValue:
		return labelLimit
	case !plain(value):
		return badText
	}
	return fine
}

// translate gives the label of one attribute. An empty name without a reason means that the
// attribute gives no label.
func (n *naming) translate(a attribute) (labels.Label, reason) {
	// An attribute called as the metric name's own label is skipped, as
	// Prometheus does; a list or a map gives no label.
	if a.key == metricLabel || !a.scalar || a.value == "" {
		return labels.Label{}, fine
	}
	name, why := n.labelName(a.key)
	if why == fine {
		why = unfit(a.value)
	}
	if why == fine && !plain(a.key) {
		why = badText
	}
	if why != fine {
		return labels.Label{}, why
	}
	return labels.Label{Name: name, Value: a.value}, fine
}

// pointLabels gives the labels of a point but for the metric name. taken is a
// label that the caller will add, or empty.
func (n *naming) pointLabels(base []labels.Label, attrs []attribute, taken string) ([]labels.Label, reason) {
	list := make([]labels.Label, 0, min(len(base)+len(attrs), maxLabels)+2)
	for _, a := range attrs {
		l, why := n.translate(a)
		switch {
		case why != fine:
			return nil, why
		case l.Name == "" || has(base, l.Name): // the resource's word stands
			continue
		case l.Name == taken || has(list, l.Name):
			return nil, labelCollision
		case len(list)+len(base) == maxLabels:
			return nil, labelLimit
		}
		list = append(list, l)
	}
	return append(list, base...), fine
}

func has(list []labels.Label, name string) bool {
	for i := range list {
		if list[i].Name == name {
			return true
		}
	}
	return false
}

// noLabel is for named, where there is no label more.
var noLabel labels.Label

// named makes the labels of a series: list, the metric name, and one more label
// when its name is not empty.
func named(list []labels.Label, metric string, more labels.Label) labels.Labels {
	b := labels.NewScratchBuilder(len(list) + 2)
	for _, l := range list {
		b.Add(l.Name, l.Value)
	}
	b.Add(metricLabel, metric)
	if more.Name != "" {
		b.Add(more.Name, more.Value)
	}
	b.Sort()
	return b.Labels()
}
