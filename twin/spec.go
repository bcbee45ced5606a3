package twin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Spec is the target of a node: how its packages and GPUs are to be capped. What
// is absent is not asked for.
type Spec struct {
	NodeName string      `json:"nodeName"`
	Profile  string      `json:"profile,omitempty"` // performance or eco: kept and shown, nothing hangs on it
	CPU      *SpecCPU    `json:"cpu,omitempty"`
	GPU      *SpecGPU    `json:"gpu,omitempty"`
	Policy   *SpecPolicy `json:"policy,omitempty"`
}

// SpecCPU is the cap of every CPU package. Watts go before percent.
type SpecCPU struct {
	PackagePowerCapWatts    *float64 `json:"packagePowerCapWatts,omitempty"`
	PackagePowerCapPctOfMax *float64 `json:"packagePowerCapPctOfMax,omitempty"`
}

// SpecGPU is the cap of the GPUs.
type SpecGPU struct {
	PowerCap *SpecPowerCap `json:"powerCap,omitempty"`
}

// SpecPowerCap is one cap for each GPU. Watts go before percent.
type SpecPowerCap struct {
	Scope          string   `json:"scope,omitempty"` // perGpu
	CapWattsPerGPU *float64 `json:"capWattsPerGpu,omitempty"`
	CapPctOfMax    *float64 `json:"capPctOfMax,omitempty"`
}

// SpecPolicy says which policy made the target.
type SpecPolicy struct {
	Name string `json:"name,omitempty"`
}

// Bounds of a spec.
const (
	// MaxSpec is how many bytes a document may have.
	MaxSpec   = 64 << 10
	maxWatts  = 100_000
	maxString = 253
)

// SpecError is what is wrong with a document, and where. Line is 0 where no place
// can be named.
type SpecError struct {
	Line, Col int
	Text      string
}

func (e *SpecError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, e.Text)
}

// In is the error as messages about files are printed.
func (e *SpecError) In(path string) string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: error: %s", path, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: error: %s", path, e.Line, e.Col, e.Text)
}

// ParseSpec reads a NodeTwin, or its spec alone, in YAML or JSON, for the node of
// that name. It is strict: a key that is unknown or stands twice, null, a number
// in quotes and a value outside its range are errors (*SpecError). Of a whole
// NodeTwin the status and all metadata but the name are not looked at.
func ParseSpec(data []byte, node string) (*Spec, error) {
	if len(data) > MaxSpec {
		return nil, &SpecError{Text: fmt.Sprintf("the document has more than %d KiB", MaxSpec>>10)}
	}
	r := specReader{node: node}
	root, err := r.document(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return nil, err
	}
	spec := r.whole(root)
	if r.err != nil {
		return nil, r.err
	}
	return spec, nil
}

// specReader keeps the first error.
type specReader struct {
	node string
	err  *SpecError
}

var yamlPlace = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// document is the root of the one document in data.
func (r *specReader) document(data []byte) (*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, &SpecError{Text: "the document is no UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if err == nil {
		if err = dec.Decode(&more); err == nil {
			return nil, &SpecError{max(more.Line, 1), max(more.Column, 1), "a second document; a target has one"}
		}
		if errors.Is(err, io.EOF) {
			return doc.Content[0], nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, &SpecError{Text: "the document is empty; remove the file, or send DELETE, to withdraw the target"}
	}
	e := &SpecError{Text: "neither YAML nor JSON: " + err.Error()}
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil {
		e.Text = "neither YAML nor JSON: " + m[2]
		if e.Line, _ = strconv.Atoi(m[1]); e.Line > 0 { // "" is 0: the library knows no place
			e.Col = 1
		}
	}
	return nil, e
}

func (r *specReader) fail(n *yaml.Node, format string, args ...any) {
	if r.err == nil {
		r.err = &SpecError{n.Line, n.Column, fmt.Sprintf(format, args...)}
	}
}

// field reads one key of an object.
type field struct {
	name string
	read func(*yaml.Node)
}

// object walks a mapping. path is its place for messages, "" for the root.
func (r *specReader) object(n *yaml.Node, path string, fields ...field) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%swant keys and their values", placed(path))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content) && r.err == nil; i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == k.Value })
		line, twice := seen[k.Value]
		switch {
		case k.Kind != yaml.ScalarNode || k.Value == "<<":
			r.fail(k, "%swant a plain key; anchors, aliases and merges are not read here", placed(path))
		case twice:
			r.fail(k, "%skey %s stands in line %d already", placed(path), k.Value, line)
		case at < 0:
			r.fail(k, "%sunknown key %.100q; known are %s", placed(path), k.Value, known(fields))
		case v.Kind == yaml.AliasNode:
			r.fail(v, "%s%s: aliases are not read here; write the value itself", placed(path), k.Value)
		case v.ShortTag() == "!!null":
			r.fail(v, "%s%s has no value; leave the key out", placed(path), k.Value)
		default:
			seen[k.Value] = k.Line
			fields[at].read(v)
		}
	}
}

func placed(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

func known(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// whole reads a NodeTwin or a bare spec.
func (r *specReader) whole(n *yaml.Node) *Spec {
	s := &Spec{}
	if !hasKey(n, "spec") {
		r.spec(n, "", s)
		return s
	}
	r.object(n, "",
		field{"apiVersion", func(v *yaml.Node) { r.exactly(v, "apiVersion", apiVersion) }},
		field{"kind", func(v *yaml.Node) { r.exactly(v, "kind", kindTwin) }},
		field{"metadata", func(v *yaml.Node) {
			if name := valueOf(v, "name"); name != nil && name.Value != r.node {
				r.fail(name, "metadata.name: %.253q is another node; this is %s", name.Value, r.node)
			}
		}},
		field{"spec", func(v *yaml.Node) { r.spec(v, "spec", s) }},
		field{"status", func(*yaml.Node) {}},
	)
	return s
}

func (r *specReader) spec(n *yaml.Node, path string, s *Spec) {
	r.object(n, path,
		field{"nodeName", func(v *yaml.Node) { s.NodeName = r.text(v, "nodeName") }},
		field{"profile", func(v *yaml.Node) { s.Profile = r.exactly(v, "profile", "performance", "eco") }},
		field{"cpu", func(v *yaml.Node) {
			s.CPU = &SpecCPU{}
			r.object(v, "cpu",
				field{"packagePowerCapWatts", func(v *yaml.Node) { s.CPU.PackagePowerCapWatts = r.watts(v, "cpu.packagePowerCapWatts") }},
				field{"packagePowerCapPctOfMax", func(v *yaml.Node) {
					s.CPU.PackagePowerCapPctOfMax = r.percent(v, "cpu.packagePowerCapPctOfMax")
				}})
		}},
		field{"gpu", func(v *yaml.Node) {
			s.GPU = &SpecGPU{}
			r.object(v, "gpu", field{"powerCap", func(v *yaml.Node) { s.GPU.PowerCap = r.powerCap(v) }})
		}},
		field{"policy", func(v *yaml.Node) {
			s.Policy = &SpecPolicy{}
			r.object(v, "policy", field{"name", func(v *yaml.Node) { s.Policy.Name = r.text(v, "policy.name") }})
		}},
	)
	switch {
	case s.NodeName == "":
		r.fail(n, "nodeName is missing; this is %s", r.node)
	case s.NodeName != r.node:
		r.fail(valueOf(n, "nodeName"), "nodeName: %q is another node; this is %s", s.NodeName, r.node)
	}
}

func (r *specReader) powerCap(n *yaml.Node) *SpecPowerCap {
	p := &SpecPowerCap{}
	r.object(n, "gpu.powerCap",
		field{"scope", func(v *yaml.Node) { p.Scope = r.exactly(v, "gpu.powerCap.scope", "perGpu") }},
		field{"capWattsPerGpu", func(v *yaml.Node) { p.CapWattsPerGPU = r.watts(v, "gpu.powerCap.capWattsPerGpu") }},
		field{"capPctOfMax", func(v *yaml.Node) { p.CapPctOfMax = r.percent(v, "gpu.powerCap.capPctOfMax") }})
	return p
}

func (r *specReader) text(n *yaml.Node, path string) string {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		r.fail(n, "%s: want a text", path)
	case n.Value == "":
		r.fail(n, "%s is empty; leave the key out", path)
	case len(n.Value) > maxString:
		r.fail(n, "%s: more than %d bytes", path, maxString)
	}
	return n.Value
}

func (r *specReader) exactly(n *yaml.Node, path string, words ...string) string {
	if s := r.text(n, path); r.err == nil && !slices.Contains(words, s) {
		r.fail(n, "%s: %.100q is not %s", path, s, strings.Join(words, " or "))
	}
	return n.Value
}

// watts is never 0: no cap is said by leaving the key out.
func (r *specReader) watts(n *yaml.Node, path string) *float64 {
	v := r.number(n, path)
	if v < 1 || v > maxWatts {
		r.fail(n, "%s: %g is not between 1 and %d W; to ask for no cap, leave the key out", path, v, maxWatts)
	}
	return &v
}

func (r *specReader) percent(n *yaml.Node, path string) *float64 {
	v := r.number(n, path)
	if v < 1 || v > 100 {
		r.fail(n, "%s: %g is not between 1 and 100 percent; to ask for no cap, leave the key out", path, v)
	}
	return &v
}

// jsonNumber is how a number is written; YAML has more ways, some of which read
// otherwise than they look (010).
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (r *specReader) number(n *yaml.Node, path string) float64 {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.TaggedStyle) != 0 || !jsonNumber.MatchString(n.Value) || err != nil {
		r.fail(n, "%s: want a number, without quotes and unit", path)
	}
	return v
}

func hasKey(n *yaml.Node, key string) bool { return valueOf(n, key) != nil }

// valueOf is the value of a key of a mapping, nil without one.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
