// Package wattloop_test keeps the architecture: who may import whom, what no
// part may reach for, and that every package says what it is for.
package wattloop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/wattloop/wattloop"

// rule is what one room may import: ours by room, the outside world by prefix.
// The standard library is open to all but what never names.
type rule struct {
	ours, outside, never []string
}

const (
	prom  = "github.com/prometheus/prometheus/"
	pdata = "go.opentelemetry.io/collector/pdata"
	otel  = "go.opentelemetry.io/otel"
	unix  = "golang.org/x/sys/unix"
)

var observed = []string{"github.com/prometheus/client_golang"} // metrics: engine, ingest, store, api and cmd

// rooms is the table of ARCHITECTURE.md. A package that has no line here fails
// the test: a new room is a decision.
var rooms = map[string]rule{
	"sysfs":               {outside: []string{"github.com/prometheus/procfs", unix}},
	"presets":             {},
	"presets/names":       {},
	"rules.d":             {},
	"rules":               {ours: []string{"internal/nearest", "presets/names"}, outside: []string{prom + "promql/parser", prom + "model/labels", "gopkg.in/yaml.v3"}, never: []string{"os", "net"}},
	"store":               {ours: []string{"internal/group"}, outside: append([]string{prom + "tsdb", prom + "promql", prom + "storage", prom + "model", prom + "util/annotations", "github.com/prometheus/common/model", "github.com/prometheus/client_model/go", unix}, observed...)},
	"queue":               {ours: []string{"internal/disk", "internal/group"}},
	"store/remote":        {ours: []string{"queue", "store"}, outside: append([]string{prom + "tsdb/chunkenc", prom + "storage", prom + "model", prom + "util/annotations", "github.com/klauspost/compress", "google.golang.org/protobuf/encoding/protowire", unix}, observed...)},
	"ingest":              {ours: []string{"access", "internal/disk", "presets/names"}, outside: append([]string{pdata, "github.com/prometheus/otlptranslator", prom + "storage", prom + "model/labels", prom + "model/value", prom + "model/histogram", prom + "model/exemplar", "golang.org/x/text/unicode/norm", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc", unix, "github.com/klauspost/compress"}, observed...)},
	"ingest/host":         {ours: []string{"ingest", "internal/disk", "internal/numberless", "sysfs", "presets/names"}, outside: []string{pdata, "github.com/NVIDIA/go-nvml"}},
	"ingest/listen":       {ours: []string{"access", "ingest", "internal/disk"}, outside: []string{"google.golang.org/grpc", unix}},
	"ingest/scrape":       {ours: []string{"ingest", "internal/fetch"}, outside: append([]string{prom + "storage", prom + "model/labels", prom + "model/value", prom + "model/histogram", prom + "model/exemplar", prom + "model/textparse", "github.com/prometheus/common/model"}, observed...)},
	"ingest/relay":        {ours: []string{"ingest", "queue"}, outside: append([]string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc", unix}, observed...)},
	"ingest/pull":         {ours: []string{"ingest", "internal/fetch"}, outside: append([]string{pdata, prom + "storage", prom + "model/labels", prom + "model/value"}, observed...)},
	"access":              {outside: []string{unix}},
	"access/webfile":      {outside: []string{"github.com/prometheus/exporter-toolkit/web", "golang.org/x/crypto/bcrypt", "gopkg.in/yaml.v3"}},
	"actuate":             {outside: []string{unix}},
	"sysfs/sysfstest":     {ours: []string{"sysfs"}},
	"actuate/rapl":        {ours: []string{"actuate", "sysfs"}, outside: []string{unix}},
	"actuate/nvml":        {ours: []string{"actuate", "sysfs"}, outside: []string{unix, "github.com/NVIDIA/go-nvml"}},
	"actuate/warden":      {ours: []string{"actuate", "internal/disk", "sysfs"}, outside: []string{unix}},
	"actuate/actuatetest": {ours: []string{"actuate", "sysfs"}, outside: []string{unix}},
	"doubt":               {ours: []string{"presets/names"}, outside: []string{prom + "model/labels"}},
	"engine":              {ours: []string{"rules", "actuate", "internal/numberless"}, outside: append([]string{prom + "storage", prom + "model/labels", prom + "model/value"}, observed...)},
	"twin":                {ours: []string{"engine", "internal/disk", "rules", "actuate", "sysfs", "presets/names"}, outside: append([]string{prom + "model/labels", "gopkg.in/yaml.v3"}, observed...), never: []string{"net"}},
	"api":                 {ours: []string{"access", "engine", "twin", "internal/nearest"}, outside: append([]string{prom + "storage", prom + "model/labels", prom + "promql/parser"}, observed...)},
	"sim":                 {ours: []string{"presets/names", "sysfs"}, outside: []string{pdata, otel}},
	"internal/disk":       {},
	"internal/fetch":      {ours: []string{"internal/httpfile"}},
	"internal/httpfile":   {outside: []string{"github.com/prometheus/common/config"}},
	"internal/group":      {},
	"internal/nearest":    {},
	"internal/numberless": {},
	"internal/testsum":    {},
	"internal/mutants":    {},
	"cmd/wattloop":        {ours: []string{"*"}, outside: append([]string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sync/errgroup", "google.golang.org/grpc", "gopkg.in/yaml.v3", prom + "model/labels", prom + "model/value", prom + "storage", unix, "github.com/fsnotify/fsnotify", "github.com/schollz/progressbar"}, observed...)},
}

// file is one Go file of the product, parsed.
type file struct {
	path, room string
	test       bool
	ast        *ast.File
}

func files(t *testing.T) []file {
	t.Helper()
	var out []file
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "bench" || path == "bin" || path == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir // bench is a module of its own
		}
		if !strings.HasSuffix(path, ".go") || filepath.Dir(path) == "." {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, file{path, filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func imports(f file) []string {
	var out []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

func TestImports(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		r, ok := rooms[f.room]
		if !ok {
			t.Errorf("%s: room %s has no line in the table", f.path, f.room)
			continue
		}
		for _, p := range imports(f) {
			if !r.allows(p) {
				t.Errorf("%s: %s may not import %s", f.path, f.room, p)
			}
		}
	}
}

func (r rule) allows(p string) bool {
	if own, ok := strings.CutPrefix(p, module+"/"); ok {
		return slices.Contains(r.ours, "*") || slices.Contains(r.ours, own)
	}
	if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") { // standard library
		return !slices.ContainsFunc(r.never, func(n string) bool { return p == n || strings.HasPrefix(p, n+"/") && p != "net/netip" })
	}
	return slices.ContainsFunc(r.outside, func(o string) bool {
		return p == o || strings.HasPrefix(p, strings.TrimSuffix(o, "/")+"/")
	})
}

// Outside tests nobody links Prometheus's own rule manager, notifier or web
// server, and nobody but store opens the TSDB.
func TestNeverImported(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		for _, p := range imports(f) {
			for _, never := range []string{"rules", "notifier", "web"} {
				if p == prom+never || strings.HasPrefix(p, prom+never+"/") {
					t.Errorf("%s imports %s", f.path, p)
				}
			}
			if strings.HasPrefix(p, prom+"tsdb") && f.room != "store" && p != prom+"tsdb/chunkenc" {
				t.Errorf("%s imports %s: only store opens the TSDB", f.path, p)
			}
			if p == "math/rand" || p == "math/rand/v2" {
				if f.room != "cmd/wattloop" && f.room != "sim" {
					t.Errorf("%s imports %s", f.path, p)
				}
			}
		}
	}
}

// clocks are the files that may read the wall clock or sleep: what runs live.
var clocks = []string{"cmd/wattloop/", "engine/run.go", "actuate/warden/", "actuate/client.go", "internal/testsum/"}

// A default of a Clock field may name time.Now without calling it.
func TestNoClockBelow(t *testing.T) {
	for _, f := range files(t) {
		if f.test || slices.ContainsFunc(clocks, func(c string) bool { return strings.HasPrefix(f.path, c) }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if x, isID := sel2id(sel, ok); isID && x == "time" && slices.Contains([]string{"Now", "Sleep", "Since", "Until"}, sel.Sel.Name) {
				t.Errorf("%s calls time.%s; take a clock", f.path, sel.Sel.Name)
			}
			return true
		})
	}
}

func sel2id(sel *ast.SelectorExpr, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	return id.Name, true
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	doc := map[string]bool{}
	for _, f := range files(t) {
		if !f.test {
			doc[f.room] = doc[f.room] || f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != ""
		}
	}
	for room, ok := range doc {
		if !ok {
			t.Errorf("%s: no package comment", room)
		}
	}
}

// A package variable that changes after init is a global; so is an init that
// registers. The one exception: store puts its two functions into PromQL's table.
func TestNoInit(t *testing.T) {
	for _, f := range files(t) {
		if f.test || f.room == "store" {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init", f.path)
			}
		}
	}
}

func TestFilesStaySmall(t *testing.T) {
	for _, f := range files(t) {
		b, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n > 400 && !f.test {
			t.Errorf("%s has %d lines: what second thing moved in?", f.path, n)
		}
	}
}

// Every preset and every shipped rule has its script beside it.
func TestEveryPresetHasItsScript(t *testing.T) {
	scripts := []string{}
	dirs, _ := filepath.Glob("presets/*/preset.yaml")
	for _, p := range dirs {
		name := filepath.Base(filepath.Dir(p))
		scripts = append(scripts, filepath.Join(filepath.Dir(p), name+".txtar"))
	}
	shipped, _ := filepath.Glob("rules.d/*.yaml")
	for _, p := range shipped {
		scripts = append(scripts, strings.TrimSuffix(p, ".yaml")+".txtar")
	}
	if len(scripts) < 2 {
		t.Fatalf("found %d presets and rules", len(scripts))
	}
	for _, s := range scripts {
		if _, err := os.Stat(s); err != nil {
			t.Errorf("%s: no script", s)
		}
	}
}

// aids are packages that no room is made of: they serve the tests and make.
var aids = []string{"internal/mutants", "internal/testsum", "sysfs/sysfstest"}

// The table of ARCHITECTURE.md says of each room what the table above says.
func TestThePageSaysSo(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile("`([^`]+)`")
	said := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || !strings.HasPrefix(line, "| `") {
			continue
		}
		uses := []string{}
		if strings.TrimSpace(cells[3]) == "everything" {
			uses = []string{"*"}
		}
		for _, w := range words.FindAllStringSubmatch(cells[3], -1) {
			uses = append(uses, w[1])
		}
		for _, w := range words.FindAllStringSubmatch(cells[1], -1) {
			said[w[1]] = uses
		}
	}
	for room, r := range rooms {
		uses, ok := said[room]
		delete(said, room)
		switch {
		case slices.Contains(aids, room):
		case !ok:
			t.Errorf("ARCHITECTURE.md has no row for %s", room)
		case !slices.Equal(slices.Sorted(slices.Values(uses)), slices.Sorted(slices.Values(r.ours))):
			t.Errorf("ARCHITECTURE.md: %s may use %q; the test lets it use %q", room, uses, r.ours)
		}
	}
	for room := range said {
		t.Errorf("ARCHITECTURE.md has a row for %s, which is no room", room)
	}
}
