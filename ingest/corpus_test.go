package ingest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// corpus finds the folder of real files, or skips the test.
func corpus(t *testing.T) string {
	dir := os.Getenv("WATTLOOP_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(filepath.Join(dir, "otlp")); err != nil {
		t.Skipf("no corpus: %v; set WATTLOOP_CORPUS to its folder", err)
	}
	return dir
}

// TestCorpus sends every OTLP metrics file of the corpus. The count of points
// comes from pdata's own decode, the series from Prometheus's converter, and what
// is on neither side is on the list of deviations by reason.
func TestCorpus(t *testing.T) {
	dir := filepath.Join(corpus(t), "otlp")
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		req := pmetricotlp.NewExportRequest()
		isJSON := filepath.Ext(path) == ".json"
		if isJSON {
			err = req.UnmarshalJSON(body)
		} else {
			err = req.UnmarshalProto(body)
		}
		if err != nil || req.Metrics().DataPointCount() == 0 {
			return nil // traces, logs, and what is no OTLP
		}
		files++
		t.Run(filepath.Base(path), func(t *testing.T) {
			checkCorpusFile(t, body, isJSON, req.Metrics())
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 25 {
		t.Errorf("%d files with metrics; the corpus has more", files)
	}
}

func checkCorpusFile(t *testing.T, body []byte, isJSON bool, md pmetric.Metrics) {
	x := newExpectation(t, otlptranslator.UnderscoreEscapingWithSuffixes)
	x.request(md)
	if int(x.points) != md.DataPointCount() {
		t.Fatalf("the test counts %d points, pdata %d", x.points, md.DataPointCount())
	}
	b := newBed(t, func(o *Options) { o.NoTimeGate = true })
	export := b.r.Export
	if isJSON {
		export = b.r.ExportJSON
	}
	res, err := export(context.Background(), body)
	if err != nil {
		t.Fatal(err)
	}
	x.check(b.stored(), []Result{res})
	t.Logf("%d accepted, %d rejected %v", res.Accepted, res.Rejected, res.ByReason)
}

// What holds no metrics is read as an empty request, or refused, as pdata does.
func TestCorpusOther(t *testing.T) {
	dir := filepath.Join(corpus(t), "otlp")
	for _, name := range []string{
		"open-telemetry-opentelemetry-proto/trace.json",
		"open-telemetry-opentelemetry-proto/logs.json",
		"opensearch-project-data-prepper/test-metrics.json",
		"opensearch-project-data-prepper/test-standard-metrics.json",
	} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b := newBed(t, nil)
		res, err := b.r.ExportJSON(context.Background(), body)
		if err != nil || res.Accepted+res.Rejected+res.Folded != 0 || len(b.stored()) != 0 {
			t.Errorf("%s: %+v, %v; want nothing", name, res, err)
		}
	}
	// Several documents one after another are a recording, not a request.
	body, err := os.ReadFile(filepath.Join(dir, "GoogleCloudPlatform-opentelemetry-operations-go/traces_basic.json"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(body, []byte("resourceSpans")); n < 2 {
		t.Fatalf("%d documents", n)
	}
	_, err = newBed(t, nil).r.ExportJSON(context.Background(), body)
	wantDecodeError(t, err)
	if err != nil && !strings.Contains(err.Error(), "more follows after the document") {
		t.Error(err)
	}
}
