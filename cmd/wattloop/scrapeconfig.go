package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/ingest/scrape"
)

// scrapeList is the setting scrape.
type scrapeList []scrape.Target

const scrapeForm = "want a list of targets, like [{url: http://127.0.0.1:9100/metrics, interval: 15s}]"

func (l *scrapeList) Type() string { return "yaml" }

// String is the list as JSON, which is YAML on one line.
func (l *scrapeList) String() string {
	rows := []map[string]any{}
	for _, t := range *l {
		m := map[string]any{"url": t.URL}
		for key, d := range map[string]time.Duration{"interval": t.Interval, "timeout": t.Timeout} {
			if d != 0 {
				m[key] = dur(&d).String()
			}
		}
		if t.Node != "" {
			m["node"] = t.Node
		}
		if len(t.Labels) > 0 {
			m["labels"] = t.Labels
		}
		if t.HTTP != "" {
			m["http"] = t.HTTP
		}
		if t.SampleLimit != 0 {
			m["sample_limit"] = t.SampleLimit
		}
		if size := byteSize(t.BodyLimit); size != 0 {
			m["body_size_limit"] = size.String()
		}
		rows = append(rows, m)
	}
	b, err := json.Marshal(rows)
	if err != nil {
		panic("BUG: scrape: " + err.Error())
	}
	return string(b)
}

// Set reads the list from a flag or a variable.
func (l *scrapeList) Set(text string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return errors.New(scrapeForm)
	}
	f := fileReader{path: "value", lines: strings.Split(text, "\n"), env: func(string) (string, bool) { return "", false }}
	l.read(doc.Content[0], &f)
	if len(f.messages) > 0 {
		return &configError{f.messages}
	}
	return nil
}

// read takes the list from a file. It changes nothing when a part is in error.
func (l *scrapeList) read(n *yaml.Node, f *fileReader) {
	if n.Kind != yaml.SequenceNode {
		f.fail(n, "", "scrape: %s", scrapeForm)
		return
	}
	before := len(f.messages)
	all := scrapeList{}
	lines := map[string]int{} // by the target's own labels
	for _, e := range n.Content {
		r := targetReader{channelReader: channelReader{f: f, lines: map[string]*yaml.Node{}}, at: e}
		t, ok := r.target(e)
		if !ok {
			continue
		}
		own := t.Own().String()
		if line, twice := lines[own]; twice {
			f.fail(r.at, "", "scrape: the target in line %d has the labels %s too, and the series of both would be one; give one of them another label, like labels: {job: kepler}", line, own)
		}
		lines[own] = r.at.Line
		all = append(all, t)
	}
	if len(f.messages) == before {
		*l = all
	}
}

// targetReader reads one target.
type targetReader struct {
	channelReader
	at *yaml.Node // its url, or all of it
}

func (r *targetReader) target(n *yaml.Node) (scrape.Target, bool) {
	var t scrape.Target
	before := len(r.f.messages)
	scalar := func(set func(string) error) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			text, err := r.f.scalar(n)
			if err != nil {
				return err
			}
			return set(text)
		}
	}
	r.keys(n, "scrape", []keyReader{
		{"url", func(n *yaml.Node) error {
			r.at = n
			return scalar(func(s string) (err error) { t.URL, err = scrape.ParseURL(s); return err })(n)
		}},
		{"interval", scalar(positive(&t.Interval))},
		{"timeout", scalar(positive(&t.Timeout))},
		{"node", scalar(func(s string) error {
			if t.Node = s; s == "" {
				return errors.New("is empty; name the node, or leave the key out")
			}
			return nil
		})},
		{"labels", func(n *yaml.Node) error { return r.labels(n, &t) }},
		{"http", scalar(func(s string) error {
			if t.HTTP = s; s == "" {
				return errors.New("is empty; name the file, or leave the key out")
			}
			return nil
		})},
		{"sample_limit", scalar(func(s string) (err error) {
			if t.SampleLimit, err = strconv.Atoi(s); err != nil || t.SampleLimit < 1 {
				return fmt.Errorf("%q is no whole number of 1 or more", s)
			}
			return nil
		})},
		{"body_size_limit", scalar(func(s string) error {
			var size byteSize
			if err := size.Set(s); err != nil || size < 1 {
				return fmt.Errorf("%q is no size; write it like 20MiB", s)
			}
			t.BodyLimit = int64(size)
			return nil
		})},
		{"honor_labels", scalar(func(s string) error {
			if s != "false" {
				return errors.New("the target's own labels always stand; what the page says is kept as exported_instance, exported_job and so on")
			}
			return nil
		})},
	})
	if len(r.f.messages) == before {
		if err := t.Check(); err != nil {
			r.f.fail(r.place(err, r.at), "", "scrape: %s", err)
		}
	}
	return t, len(r.f.messages) == before
}

// positive reads a duration that is not 0.
func positive(d *time.Duration) func(string) error {
	return func(s string) error {
		if err := dur(d).Set(s); err != nil {
			return err
		}
		if *d == 0 {
			return errors.New("0 is no time")
		}
		return nil
	}
}

// labels reads a map of names and values.
func (r *targetReader) labels(n *yaml.Node, t *scrape.Target) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("want a map, like {job: kepler}")
	}
	t.Labels = map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if _, twice := t.Labels[k.Value]; twice {
			r.f.fail(k, "", "scrape: labels: %s is there twice", k.Value)
			continue
		}
		text, err := "", errors.New("want a plain value")
		if v.Kind == yaml.ScalarNode {
			text, err = r.f.scalar(v)
		}
		if err == nil {
			err = scrape.CheckLabel(k.Value, text)
		}
		if err != nil {
			r.f.fail(k, "", "scrape: labels: %s", err)
		}
		t.Labels[k.Value] = text
	}
	return nil
}
