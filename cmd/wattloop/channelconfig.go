package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
	"github.com/wattloop/wattloop/internal/nearest"
)

// channelConfig is one channel of the configuration.
type channelConfig struct {
	Spec     listen.Spec
	Identity *ingest.Identity // activates it at start
}

// channelList is the setting channels.
type channelList []channelConfig

func (l *channelList) Type() string { return "yaml" }

// String is the list as JSON, which is YAML on one line.
func (l *channelList) String() string {
	rows := []map[string]any{}
	for _, c := range *l {
		rows = append(rows, c.plain())
	}
	b, err := json.Marshal(rows)
	if err != nil {
		panic("BUG: channels: " + err.Error())
	}
	return string(b)
}

// plain is c with the keys of the configuration.
func (c *channelConfig) plain() map[string]any {
	s := &c.Spec
	m := map[string]any{"name": s.Name, "class": s.Class, "listen": s.Listen[0]}
	if len(s.Listen) == 2 {
		m["listen"] = map[string]any{"grpc": s.Listen[0], "http": s.Listen[1]}
	}
	if s.Mode != 0 {
		m["mode"] = fmt.Sprintf("%#o", s.Mode)
	}
	if s.Group != "" {
		m["group"] = s.Group
	}
	if len(s.Nodes) > 0 {
		m["nodes"] = s.Nodes
	}
	if s.Gauge != "" {
		m["gauge"] = s.Gauge
	}
	if s.Limits != (ingest.Limits{}) {
		limits := map[string]float64{}
		for _, f := range limitFields(&s.Limits) {
			if v := f.get(); v != 0 {
				limits[f.name] = v
			}
		}
		m["limits"] = limits
	}
	if c.Identity != nil {
		m["identity"] = c.Identity
	}
	return m
}

// Set reads the list from a flag or a variable.
func (l *channelList) Set(text string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return fmt.Errorf("want a list of channels like [{name: worker-1, listen: 127.0.0.1:4327}]")
	}
	f := fileReader{path: "value", lines: strings.Split(text, "\n"), env: func(string) (string, bool) { return "", false }}
	l.read(doc.Content[0], &f)
	if len(f.messages) > 0 {
		return &configError{f.messages}
	}
	return nil
}

// read takes the list from a file. It changes nothing when a part is in error.
func (l *channelList) read(n *yaml.Node, f *fileReader) {
	if n.Kind != yaml.SequenceNode {
		f.fail(n, "", "channels: want a list, like [{name: worker-1, listen: 127.0.0.1:4327}]")
		return
	}
	before := len(f.messages)
	all := channelList{}
	names := map[string]int{}
	type taken struct {
		at            listen.Address
		channel, line int
	}
	var addrs []taken
	for i, e := range n.Content {
		r := channelReader{f: f, lines: map[string]*yaml.Node{}}
		c, ok := r.channel(e)
		if !ok {
			continue
		}
		at := r.lines["name"]
		if line, twice := names[c.Spec.Name]; twice {
			f.fail(at, "", "channels: %s is the name of the channel in line %d already", c.Spec.Name, line)
		}
		names[c.Spec.Name] = at.Line
		for _, a := range c.Spec.Listen {
			at := r.lines["listen"]
			for _, t := range addrs {
				switch {
				case !sameAddress(a.String(), t.at.String()), t.channel == i && t.at == a: // its own twice is one
				case t.channel == i:
					f.fail(at, "", "channels: %s: %s and %s are one address: write them alike", c.Spec.Name, t.at, a)
				default:
					f.fail(at, "", "channels: %s: %s is the address of the channel in line %d already", c.Spec.Name, a, t.line)
				}
			}
			addrs = append(addrs, taken{a, i, at.Line})
		}
		all = append(all, c)
	}
	if len(f.messages) == before {
		*l = all
	}
}

// channelReader reads one channel.
type channelReader struct {
	f     *fileReader
	lines map[string]*yaml.Node // the value of each key that was read
}

func (r *channelReader) channel(n *yaml.Node) (channelConfig, bool) {
	var c channelConfig
	before := len(r.f.messages)
	s := &c.Spec
	text := func(p *string) func(*yaml.Node) error {
		return func(n *yaml.Node) (err error) { *p, err = r.f.scalar(n); return err }
	}
	class, gauge := "", ""
	r.keys(n, "channels", []keyReader{
		{"name", text(&s.Name)},
		{"listen", func(n *yaml.Node) error { return r.listen(n, s) }},
		{"class", text(&class)},
		{"identity", func(n *yaml.Node) error {
			c.Identity = &ingest.Identity{}
			var ks []keyReader
			for _, f := range identityFields(c.Identity) {
				ks = append(ks, keyReader{f.name, text(f.p)})
			}
			r.keys(n, "channels: identity", ks)
			return nil
		}},
		{"nodes", func(n *yaml.Node) (err error) { s.Nodes, err = r.texts(n); return err }},
		{"gauge", text(&gauge)},
		{"limits", func(n *yaml.Node) error { r.limits(n, &s.Limits); return nil }},
		{"mode", func(n *yaml.Node) (err error) {
			var t string
			if t, err = r.f.scalar(n); err == nil {
				s.Mode, err = parseMode(t)
			}
			return err
		}},
		{"group", text(&s.Group)},
	})
	s.Class, s.Gauge = ingest.Class(class), ingest.Gauge(gauge)
	for _, must := range []string{"name", "listen"} {
		if len(r.f.messages) == before && r.lines[must] == nil {
			r.f.fail(n, "", "channels: a channel has no %s", must)
		}
	}
	if len(r.f.messages) > before {
		return c, false
	}
	if s.Class == "" {
		s.Class = ingest.Workload
	}
	if err := c.check(); err != nil {
		r.f.fail(r.place(err, r.lines["name"]), "", "channels: %s: %s", s.Name, err)
	}
	return c, len(r.f.messages) == before
}

// check is what cannot be told from one key alone.
func (c *channelConfig) check() error {
	switch {
	case ownChannel(c.Spec.Name):
		return fmt.Errorf("is a channel of the program itself; choose another name")
	case c.Identity != nil && c.Spec.Class == ingest.Node:
		return ingest.InKey("identity", "a channel of class node has no identity: its producers are trusted")
	case c.Identity != nil:
		if err := c.Identity.Check(); err != nil {
			return err
		}
	}
	return c.Spec.Check()
}

// place is the value of the key that err lies in; of no one key, or of one that is
// not there, it is other.
func (r *channelReader) place(err error, other *yaml.Node) *yaml.Node {
	var ke *ingest.KeyError
	if errors.As(err, &ke) && r.lines[ke.Key] != nil {
		return r.lines[ke.Key]
	}
	return other
}

// keyReader reads the value of one key.
type keyReader struct {
	key  string
	read func(*yaml.Node) error
}

// keys reads a map whose keys are all known. where begins the messages.
func (r *channelReader) keys(n *yaml.Node, where string, known []keyReader) {
	if n.Kind != yaml.MappingNode {
		r.f.fail(n, "", "%s: want a map of keys", where)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if line, twice := seen[k.Value]; twice {
			r.f.fail(k, "", "%s: key %s is already set in line %d", where, k.Value, line)
			continue
		}
		seen[k.Value] = k.Line
		j := slices.IndexFunc(known, func(x keyReader) bool { return x.key == k.Value })
		if j < 0 {
			var words []string
			for _, x := range known {
				words = append(words, x.key)
			}
			r.f.fail(k, nearest.Of(k.Value, words), "%s: unknown key %s", where, k.Value)
			continue
		}
		if !strings.Contains(where, ":") { // not within a key of the definition
			r.lines[k.Value] = v
		}
		if err := known[j].read(v); err != nil {
			r.f.fail(v, "", "%s: %s: %s", where, k.Value, err)
		}
	}
}

// listen reads one address, or the two of {grpc, http}.
func (r *channelReader) listen(n *yaml.Node, s *listen.Spec) error {
	one := func(n *yaml.Node, to *[]listen.Address) error {
		t, err := r.f.scalar(n)
		if err != nil {
			return err
		}
		a, err := listen.ParseAddress(t)
		*to = append(*to, a)
		return err
	}
	if n.Kind != yaml.MappingNode {
		return one(n, &s.Listen)
	}
	var grpc, http []listen.Address
	r.keys(n, "channels: listen", []keyReader{
		{"grpc", func(n *yaml.Node) error { return one(n, &grpc) }},
		{"http", func(n *yaml.Node) error { return one(n, &http) }},
	})
	s.Listen = append(grpc, http...)
	return nil
}

func (r *channelReader) texts(n *yaml.Node) ([]string, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("want a list of node names")
	}
	var out []string
	for _, e := range n.Content {
		t, err := r.f.scalar(e)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (r *channelReader) limits(n *yaml.Node, l *ingest.Limits) {
	var ks []keyReader
	for _, f := range limitFields(l) {
		ks = append(ks, keyReader{f.name, func(n *yaml.Node) error {
			t, err := r.f.scalar(n)
			if err != nil {
				return err
			}
			return f.set(t)
		}})
	}
	r.keys(n, "channels: limits", ks)
}

// limitField is one key of limits, a float or a whole number.
type limitField struct {
	name  string
	rate  *float64
	count *int
}

func limitFields(l *ingest.Limits) []limitField {
	return []limitField{
		{"points", &l.Points, nil}, {"bytes", &l.Bytes, nil}, {"new_series", &l.NewSeries, nil},
		{"streams", nil, &l.Streams}, {"conns", nil, &l.Conns}, {"series", nil, &l.Series},
	}
}

func (f limitField) get() float64 {
	if f.rate != nil {
		return *f.rate
	}
	return float64(*f.count)
}

func (f limitField) set(s string) error {
	if f.name == "bytes" {
		var size byteSize
		if size.Set(s) == nil {
			*f.rate = float64(size)
			return nil
		}
	}
	if f.rate != nil {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%q is no number", s)
		}
		*f.rate = v
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is no whole number of 0 or more", s)
	}
	*f.count = int(v)
	return nil
}

// identityField is one key of an identity.
type identityField struct {
	name string
	p    *string
	help string
}

func identityFields(id *ingest.Identity) []identityField {
	return []identityField{
		{"actor_uid", &id.ActorUID, "UID of the actor"},
		{"actor_name", &id.ActorName, "name of the actor"},
		{"atespace", &id.Atespace, "tenant of the actor"},
		{"template_namespace", &id.TemplateNamespace, "namespace of the actor's template"},
		{"template_name", &id.TemplateName, "name of the actor's template"},
		{"container", &id.Container, "name of the container"},
		{"pod_name", &id.PodName, "name of the worker pod"},
		{"pod_uid", &id.PodUID, "UID of the worker pod"},
		{"node", &id.Node, "node of the worker pod"},
		{"service_name", &id.ServiceName, "service.name, whatever the payload says"},
		{"service_namespace", &id.ServiceNamespace, "service.namespace; without it there is none"},
	}
}

// parseMode reads permissions as chmod does, in octal.
func parseMode(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, fmt.Errorf("%q: want permissions like 0660", s)
	}
	return fs.FileMode(n), nil
}
