package scrape

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// corpus finds the folder of real files, or skips the test.
func corpus(t *testing.T) string {
	dir := os.Getenv("WATTLOOP_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(filepath.Join(dir, "exposition")); err != nil {
		t.Skipf("no corpus: %v; set WATTLOOP_CORPUS to its folder", err)
	}
	return dir
}

// broken are the pages of the corpus that no parser of Prometheus's reads.
var broken = map[string]bool{
	"dcgm_l40s_viettel_cut_INVALID.prom": true, // its author cut labels to "..."
	"openmetrics_protobuf.bin":           true, // OpenMetrics's protobuf, not Prometheus's
}

// notPages are files beside the pages that are none: lists of names, raw captures
// of nvidia-smi, and results of queries.
func notPage(name string) bool {
	return strings.HasPrefix(name, "capture_") || name == "all_fields_nonlabel.txt" || strings.HasSuffix(name, ".json")
}

// kept out of a page, by file and reason; every other sample of the corpus is
// stored.
var keptOut = map[string]map[string]int{
	// A T4 has no sensor at its memory, nor has an L4, an L40S or a vGPU.
	"dcgm_l40s_upcloud_driver595.prom":        {"no_sensor": 1},
	"dcgm_l4_aws_kops_driver580.prom":         {"no_sensor": 1},
	"dcgm_t4_ericsson_driver590_no_type.prom": {"no_sensor": 1},
	"dcgm_t4_rafay_driver580.prom":            {"no_sensor": 1},
	"dcgm_vgpu_grid_a100_10c_vks_136.prom":    {"no_sensor": 1},
	"dcgm_vgpu_grid_a100_40c_vks_135.prom":    {"no_sensor": 1},
	"dcgm_vgpu_grid_a100_8c_xid_labels.prom":  {"no_sensor": 1},
	"metrics_valid.prom":                      {"dcgm_blank": 1}, // its memory temperature is 9223372036854775794
}

// Every exposition page of the corpus is served over HTTP and scraped: what is
// stored is what Prometheus's parser reads, less what is listed above.
func TestCorpusPages(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "exposition", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	pages, samples := 0, 0
	for _, path := range files {
		name := filepath.Base(path)
		if notPage(name) {
			continue
		}
		pages++
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			samples += r.file(t, name, body)
		})
	}
	t.Logf("%d pages, %d samples stored", pages, samples)
	if pages < 40 {
		t.Errorf("%d pages; the corpus has more", pages)
	}
}

// file scrapes one page from a target of its own, and returns how many of its
// samples are stored.
func (r *rig) file(t *testing.T, name string, body []byte) int {
	contentType := map[string]string{".om": "application/openmetrics-text; version=1.0.0",
		".bin": "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"}[filepath.Ext(name)]
	if contentType == "" {
		contentType = "text/plain; version=0.0.4"
	}
	want, old, parseErr := parse(body, contentType)
	r.contentType = contentType
	target := Target{URL: "http://127.0.0.1:1/" + name, Node: name}
	st := r.scrape(target, 0, string(body))
	of := labels.MustNewMatcher(labels.MatchEqual, "instance", name)
	if (parseErr != nil) != broken[name] || st.Up == broken[name] {
		t.Fatalf("up %v, %q; Prometheus's parser says %v", st.Up, st.Err, parseErr)
	}
	if broken[name] {
		if got := len(r.stored(of)); got != numReports {
			t.Errorf("%d series of a broken page", got-numReports)
		}
		return 0
	}
	out := 0
	got := map[string]int{}
	for why, n := range r.loops[target.URL].round.not {
		if n > 0 && reason(why) != tooOld {
			got[reasonWords[why].name] = n
		}
		out += n
	}
	for why, n := range keptOut[name] {
		if got[why] != n {
			t.Errorf("%d samples are %s; want %d", got[why], why, n)
		}
		delete(got, why)
	}
	if len(got) > 0 {
		t.Errorf("kept out beside what is listed: %v", got)
	}
	if st.Samples != want || st.Stored != want-out || r.loops[target.URL].round.not[tooOld] > old {
		t.Errorf("%d samples, %d stored, %d not; Prometheus's parser reads %d, of which %d have a time of their own", st.Samples, st.Stored, out, want, old)
	}
	if len(r.stored(of))-numReports > st.Stored {
		t.Errorf("%d series of %d samples", len(r.stored(of))-numReports, st.Stored)
	}
	return st.Stored
}

// parse counts the samples of a page, and those with a time, as Prometheus's
// parser reads it.
func parse(body []byte, contentType string) (n, stamped int, err error) {
	p, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true})
	if err != nil {
		return 0, 0, err
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return n, stamped, nil
		}
		if err != nil {
			return n, stamped, err
		}
		var t *int64
		switch entry {
		case textparse.EntrySeries:
			_, t, _ = p.Series()
		case textparse.EntryHistogram:
			_, t, _, _ = p.Histogram()
		default:
			continue
		}
		n++
		if t != nil {
			stamped++
		}
		var ls labels.Labels
		if p.Labels(&ls); !ls.Has(model.MetricNameLabel) {
			return n, stamped, errors.New("no name")
		}
	}
}
