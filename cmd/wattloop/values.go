package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/ingest/relay"
	"github.com/wattloop/wattloop/store"
)

// The kinds of values a setting may have, each with an error that says what
// would have been right.

type strValue struct{ p *string }

func str(p *string) pflag.Value       { return strValue{p} }
func (v strValue) String() string     { return *v.p }
func (v strValue) Set(s string) error { *v.p = s; return nil }
func (v strValue) Type() string       { return "string" }

// pathValue is the name of a file or a folder.
type pathValue struct{ strValue }

func file(p *string) pflag.Value { return pathValue{strValue{p}} }
func (v pathValue) Type() string { return kindPath }

// kindPath is the type of what names files.
const kindPath = "path"

type wordValue struct {
	p    *string
	from []string
}

func word(p *string, from ...string) pflag.Value { return wordValue{p, from} }
func (v wordValue) String() string               { return *v.p }
func (v wordValue) Type() string                 { return strings.Join(v.from, "|") }
func (v wordValue) Set(s string) error {
	if !slices.Contains(v.from, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(v.from, ", "))
	}
	*v.p = s
	return nil
}

// prefixValue is words with dots between them.
type prefixValue struct{ p *string }

func (v prefixValue) String() string { return *v.p }
func (v prefixValue) Type() string   { return "prefix" }
func (v prefixValue) Set(s string) error {
	first, _, _ := strings.Cut(s, ".")
	switch {
	case len(s) > 32 || !regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*$`).MatchString(s):
		return fmt.Errorf("%q: want small letters and digits, with dots between words, 32 at most", s)
	case slices.Contains([]string{"k8s", "host", "service", "container", "job", "instance", "channel"}, first):
		return fmt.Errorf("%q: %s is another's: want a word of your own", s, first)
	}
	*v.p = s
	return nil
}

type boolValue struct{ p *bool }

func boolean(p *bool) pflag.Value    { return boolValue{p} }
func (v boolValue) String() string   { return strconv.FormatBool(*v.p) }
func (v boolValue) Type() string     { return "bool" }
func (v boolValue) IsBoolFlag() bool { return true }
func (v boolValue) Set(s string) error {
	if s != "true" && s != "false" {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*v.p = s == "true"
	return nil
}

// durValue takes Go's durations and, for days, Prometheus's (15d).
type durValue struct{ p *time.Duration }

func dur(p *time.Duration) pflag.Value { return durValue{p} }
func (v durValue) Type() string        { return "duration" }
func (v durValue) String() string {
	if d := *v.p; d > 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	s := v.p.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
func (v durValue) Set(s string) error {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 36500 {
			*v.p = time.Duration(n) * 24 * time.Hour
			return nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration; write it like 30s, 5m or 15d", s)
	}
	*v.p = d
	return nil
}

// listValue is a flag that may be repeated. The first use replaces the default.
type listValue struct {
	p     *[]string
	fresh bool // nothing was set yet
	kind  string
}

func list(p *[]string) pflag.Value  { return &listValue{p, true, kindPath} }
func names(p *[]string) pflag.Value { return &listValue{p, true, "name"} }
func (v *listValue) String() string { return strings.Join(*v.p, ",") }
func (v *listValue) Type() string   { return v.kind }
func (v *listValue) Set(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if v.fresh {
		*v.p, v.fresh = nil, false
	}
	*v.p = append(*v.p, s)
	return nil
}

// items are the values that v holds: one, or those of a list.
func items(v pflag.Value) []string {
	if l, ok := v.(*listValue); ok {
		return slices.Clone(*l.p)
	}
	return []string{v.String()}
}

// setItems makes v hold exactly the items, whatever it held before.
func setItems(v pflag.Value, all []string) error {
	l, ok := v.(*listValue)
	if !ok {
		if len(all) != 1 {
			return errors.New("takes one value, no list")
		}
		return v.Set(all[0])
	}
	*l.p, l.fresh = nil, false
	for _, s := range all {
		if err := l.Set(s); err != nil {
			return err
		}
	}
	return nil
}

// setText sets v from a variable, where a list is parted by commas.
func setText(v pflag.Value, s string) error {
	if _, ok := v.(*listValue); ok {
		return setItems(v, strings.Split(s, ","))
	}
	return v.Set(s)
}

// durabilityValue is a word that the store knows.
type durabilityValue struct{ p *string }

func durability(p *string) pflag.Value   { return durabilityValue{p} }
func (v durabilityValue) String() string { return *v.p }
func (v durabilityValue) Type() string   { return "durability" }
func (v durabilityValue) Set(s string) error {
	if _, err := store.ParseDurability(s); err != nil {
		return fmt.Errorf("%q: want fsync, os, or interval: and a duration, like interval:1s", s)
	}
	*v.p = s
	return nil
}

// addressValue is where to listen; empty is nowhere.
type addressValue struct{ p *string }

func address(p *string) pflag.Value   { return addressValue{p} }
func (v addressValue) String() string { return *v.p }
func (v addressValue) Type() string   { return "host:port" }
func (v addressValue) Set(s string) error {
	if err := hostPort(s); err != nil {
		return err
	}
	*v.p = s
	return nil
}

// endpointValue is where requests go on to; empty is nowhere.
type endpointValue struct{ p *string }

func endpoint(p *string) pflag.Value   { return endpointValue{p} }
func (v endpointValue) String() string { return *v.p }
func (v endpointValue) Type() string   { return "endpoint" }
func (v endpointValue) Set(s string) error {
	if s != "" {
		if _, err := relay.ParseAddress(s); err != nil {
			return err
		}
	}
	*v.p = s
	return nil
}

// byteSize is a number of bytes, written like 8GiB.
type byteSize int64

var sizes = []struct {
	suffix string
	n      int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (b *byteSize) Type() string { return "size" }
func (b *byteSize) String() string {
	for _, s := range sizes {
		if n := int64(*b); n >= s.n && n%s.n == 0 {
			return fmt.Sprintf("%d%s", n/s.n, s.suffix)
		}
	}
	return "0B"
}
func (b *byteSize) Set(s string) error {
	for _, u := range sizes {
		if num, ok := strings.CutSuffix(s, u.suffix); ok {
			if n, err := strconv.ParseInt(num, 10, 40); err == nil && n >= 0 && n <= (1<<62)/u.n {
				*b = byteSize(n * u.n)
				return nil
			}
		}
	}
	return fmt.Errorf("%q is no size; write it like 512MiB or 8GiB", s)
}

// clamp bounds one device. Zero is unset; Floor is a share of the default limit.
type clamp struct {
	Min   float64 `yaml:"min"`
	Max   float64 `yaml:"max"`
	Floor float64 `yaml:"floor"`
}

type clamps map[string]clamp

func (c *clamps) Type() string { return "yaml" }
func (c *clamps) String() string {
	if len(*c) == 0 {
		return "{}"
	}
	b, err := yaml.Marshal(*c)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
func (c *clamps) Set(s string) error {
	var raw map[string]map[string]float64
	if err := yaml.Unmarshal([]byte(s), &raw); err != nil {
		return errors.New("want {DEVICE: {min: WATTS, max: WATTS, floor: SHARE}}")
	}
	m := clamps{}
	for _, dev := range sortedKeys(raw) {
		k := clamp{raw[dev]["min"], raw[dev]["max"], raw[dev]["floor"]}
		for name := range raw[dev] {
			if name != "min" && name != "max" && name != "floor" {
				return fmt.Errorf("device %s: unknown key %s; want min, max, floor", dev, name)
			}
		}
		if !(k.Min >= 0 && k.Max >= 0 && k.Floor >= 0 && k.Floor <= 1) || math.IsInf(k.Min+k.Max, 0) || k.Max != 0 && k.Min > k.Max {
			return fmt.Errorf("device %s: want 0 <= min <= max and 0 <= floor <= 1", dev)
		}
		m[dev] = k
	}
	*c = m
	return nil
}

// hostPort reads an address to listen on; empty is nowhere.
func hostPort(addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(addr, "/") {
		return fmt.Errorf("%q is no HOST:PORT; write it like 127.0.0.1:9464", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port %q is no number between 0 and 65535", addr, port)
	}
	return nil
}
