package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// channelLabel names the channel that a series came in on. The receiver sets it
// on the series of a workload channel, and on those alone: what node channels and
// the built-in sources store has none (decisions.md X26).
const channelLabel = "channel"

// channelNames are the names that the receiver takes for a channel.
var channelNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// channels reads trusted_channels: names of workload channels, none twice. It is
// sorted, so that the same channels are the same query.
func (f fields) channels(v *value) []string {
	if v == nil || v.broken {
		return nil
	}
	var names []string
	for _, item := range v.items {
		switch {
		case !channelNames.MatchString(item.text):
			f.errorf(f.rule, item.at(), "trusted_channels: %q is no name of a channel: 1 to 63 letters, digits, '.', '_' and '-', the first a letter or a digit", item.text)
		case slices.Contains(names, item.text):
			f.errorf(f.rule, item.at(), "trusted_channels: %s stands there twice", item.text)
		default:
			names = append(names, item.text)
		}
	}
	slices.Sort(names)
	return names
}

// warnTrusting warns where what a workload says moves hardware.
func (f fields) warnTrusting(c *rawControl) {
	if v := c.def.get("trusted_channels"); c.Mode == Enforce && len(c.TrustedChannels) > 0 {
		f.warnf(f.rule, f.latest(v, c.def.get("mode")), "an enforcing control trusts %s: what is sent there moves hardware",
			strings.Join(c.TrustedChannels, ", "))
	}
}

// trustMatcher selects the series of the node channels and of the workload
// channels named.
func trustMatcher(channels []string) *labels.Matcher {
	if len(channels) == 0 {
		return labels.MustNewMatcher(labels.MatchEqual, channelLabel, "")
	}
	var alternatives strings.Builder
	for _, name := range channels {
		alternatives.WriteString("|" + regexp.QuoteMeta(name))
	}
	return labels.MustNewMatcher(labels.MatchRegexp, channelLabel, alternatives.String())
}

// trust has every selector of an expanded expression read trusted channels
// alone, whatever it selects by. The matcher comes last, and can only take away.
func trust(root parser.Expr, channels []string) {
	parser.Inspect(root, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			vs.LabelMatchers = append(slices.Clip(vs.LabelMatchers), trustMatcher(channels))
		}
		return nil
	})
}

// checkTrust refuses what would reach past the trusted channels, or select
// nothing because of them.
func (l *loader) checkTrust(t *tree, channels []string) {
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			if n.Func.Name == "info" {
				l.errorf(t.rule, t.place(n.PosRange), "info() reads target_info of every channel, trusted or not: join it with * on (job, instance) group_left (...) target_info")
			}
		case *parser.VectorSelector:
			if own := onChannel(n.LabelMatchers); len(own) > 0 && !slices.ContainsFunc(append([]string{""}, channels...), func(name string) bool { return matchesAll(own, name) }) {
				l.errorf(t.rule, t.place(n.PosRange), "%s selects no trusted channel: series of node channels have no label %s, and %s",
					joinMatchers(own), channelLabel, whomToTrust(channels))
			}
		}
		return nil
	})
}

func whomToTrust(channels []string) string {
	if len(channels) == 0 {
		return "a workload channel is read only by a control that names it in trusted_channels"
	}
	return fmt.Sprintf("trusted_channels names %s", strings.Join(channels, ", "))
}

func onChannel(ms []*labels.Matcher) []*labels.Matcher {
	return slices.DeleteFunc(slices.Clone(ms), func(m *labels.Matcher) bool { return m.Name != channelLabel })
}

func matchesAll(ms []*labels.Matcher, value string) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(value) })
}

func joinMatchers(ms []*labels.Matcher) string {
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = m.String()
	}
	return strings.Join(all, ", ")
}
