package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/relay"
	"github.com/wattloop/wattloop/internal/httpfile"
	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/store/remote"
)

// prometheusAddress is the variable of S0-154, and its default.
const (
	prometheusAddress        = "PROMETHEUS_ADDRESS"
	defaultPrometheusAddress = "http://prometheus-operated.monitoring:9090"
)

// beyond are the ways out of this machine.
type beyond struct {
	read       *remote.Client // nil without storage.remote
	remoteHTTP *http.Client   // of both ways to it
	push       *relay.Relay   // to its OTLP receiver; nil unless metrics are kept there
	writing    sync.Mutex
	write      *remote.Writer // nil without storage.remote_write; guarded by writing
}

// remoteValue is a URL, or the word that takes it from PROMETHEUS_ADDRESS.
type remoteValue struct{ p *string }

func (v remoteValue) String() string { return *v.p }
func (v remoteValue) Type() string   { return "url" }
func (v remoteValue) Set(s string) error {
	if s != "" && s != "prometheus" {
		if _, err := remote.ParseURL(s); err != nil {
			return err
		}
	}
	*v.p = strings.TrimRight(s, "/")
	return nil
}

var _ pflag.Value = remoteValue{}

// deriveRemote puts the address in the place of its word.
func (c *config) deriveRemote(env func(string) (string, bool)) error {
	if c.Remote != "prometheus" {
		return nil
	}
	addr, _ := env(prometheusAddress)
	if addr == "" {
		addr = defaultPrometheusAddress
	}
	if err := (remoteValue{&c.Remote}).Set(addr); err != nil {
		return fmt.Errorf("%s: storage.remote: %w", prometheusAddress, err)
	}
	c.origin["storage.remote"] += ", " + prometheusAddress
	return nil
}

// unusedAddress says that the variable has no part in anything: what runs beside
// an embedded store names it all the same (S0-154).
func (c *config) unusedAddress(addr string) string {
	if addr == "" || c.Remote != "" {
		return ""
	}
	return prometheusAddress + " is not used: the store is embedded; with storage.remote: prometheus it would be read"
}

// address is where the rules' samples are.
func (c *config) address() string {
	if c.Remote != "" {
		return c.Remote
	}
	return c.StoragePath
}

// openRemote makes what is read beside the store; nothing without a URL.
func (p *parts) openRemote() (store.Beside, error) {
	if p.c.Remote == "" {
		return store.Beside{}, nil
	}
	u, err := remote.ParseURL(p.c.Remote)
	if err != nil {
		return store.Beside{}, fmt.Errorf("storage.remote: %w", err)
	}
	hc, err := p.c.remoteClient()
	if err != nil {
		return store.Beside{}, err
	}
	p.remoteHTTP = hc
	p.read = remote.New(remote.Options{URL: u, HTTP: hc, Registerer: p.reg, Logger: p.log.With("part", "remote"), Clock: p.clk.Now})
	return store.Beside{Rules: p.read.Steps(), People: p.read.Queryable()}, nil
}

// remoteClient is what asks storage.remote.
func (c *config) remoteClient() (*http.Client, error) {
	hc, err := httpfile.New(c.RemoteHTTP, nil)
	if err != nil {
		return nil, here(fmt.Errorf("storage.remote_http (%s): %w", c.origin["storage.remote_http"], err))
	}
	return hc, nil
}

// checkRemote says what would keep openRemote from it.
func (c *config) checkRemote() error {
	if c.Remote == "" {
		return nil
	}
	_, err := c.remoteClient()
	return err
}

// defaultOTLPPath is Prometheus's; VictoriaMetrics has /opentelemetry/v1/metrics.
const defaultOTLPPath = "/api/v1/otlp/v1/metrics"

// otlpValue is a path under storage.remote, a URL, or none.
type otlpValue struct{ p *string }

func (v otlpValue) String() string { return *v.p }
func (v otlpValue) Type() string   { return "path|url|none" }
func (v otlpValue) Set(s string) error {
	if s != "none" && !strings.HasPrefix(s, "/") {
		if _, err := remote.ParseURL(s); err != nil {
			return fmt.Errorf("%w, a path like %s, or none", err, defaultOTLPPath)
		}
	}
	*v.p = s
	return nil
}

// elsewhere says that metrics are kept by storage.remote.
func (c *config) elsewhere() bool { return c.Remote != "" && c.RemoteOTLP != "none" }

// remoteDir is where the queue to its OTLP receiver lies.
func (c *config) remoteDir() string { return filepath.Join(c.StatePath, "remote") }

// remoteOTLP is the address of its OTLP receiver.
func (c *config) remoteOTLP() (*url.URL, error) {
	if !strings.HasPrefix(c.RemoteOTLP, "/") {
		return remote.ParseURL(c.RemoteOTLP)
	}
	u, err := remote.ParseURL(c.Remote)
	if err != nil {
		return nil, err
	}
	return u.JoinPath(c.RemoteOTLP), nil
}

// elsewhere opens the way to where metrics are kept, and says who is told that
// they came: the rules whose series grew here, or all rules once they are there.
func (p *parts) elsewhere(durability store.Durability) (ingest.Onward, ingest.Watch, error) {
	c := p.c
	if !c.elsewhere() {
		return nil, ingest.Watch{Gen: p.eng.Generation, Rules: p.eng.Touched, Grew: p.eng.Grew}, nil
	}
	u, err := c.remoteOTLP()
	if err != nil {
		return nil, ingest.Watch{}, fmt.Errorf("storage.remote_otlp: %w", err)
	}
	p.push, err = relay.Open(relay.Options{
		Name: "remote_otlp", Post: &relay.Post{URL: u, Client: p.remoteHTTP}, Sent: func(ingest.Signal) { p.eng.GrewAll() },
		Dir: c.remoteDir(), MaxBytes: int64(c.RemoteQueue), Fsync: durability == store.DurabilityFsync,
		Jitter: rand.Float64, Registerer: p.reg, Logger: p.log.With("part", "remote"), Clock: p.clk.Now,
	})
	if err != nil {
		return nil, ingest.Watch{}, err
	}
	return p.push, ingest.Watch{}, nil
}

// remoteFacts is how the way to the remote engine stands; nil without one.
func (p *parts) remoteFacts() *api.Remote {
	if p.read == nil {
		return nil
	}
	s := p.read.Status()
	var push []api.Relay
	if p.push != nil {
		u, _ := p.c.remoteOTLP() // it was opened with it
		push = relayStatus(p.push, u.String())
	}
	return &api.Remote{OTLP: push, URL: s.URL, Way: s.Way, Answering: s.Answering, Answers: s.Answers, Failures: s.Failures, Bytes: s.Bytes,
		Error: s.Error, ErrorAt: known(s.ErrorAt)}
}

// remoteCause is what every rule that asks storage.remote fails of while that does
// not answer.
func remoteCause(err error) string {
	if e, ok := errors.AsType[*remote.Error](err); ok {
		return e.Error()
	}
	return ""
}

// printCauses is a line for each error that is none of a rule's own.
func printCauses(w io.Writer, all []api.Rule) {
	hit := map[string][]string{}
	for _, r := range all {
		if r.Cause != "" {
			hit[r.Cause] = append(hit[r.Cause], r.Name)
		}
	}
	for _, cause := range sortedKeys(hit) {
		fmt.Fprintf(w, "no answer of %s, for one cause: %s\n  %s\n", plural(len(hit[cause]), "rule"), cause, strings.Join(hit[cause], ", "))
	}
}

// known is a time, nil for none.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// remoteLine is the way to the remote engine as status shows it.
func remoteLine(r *api.Remote) string {
	s := "reads " + r.URL
	if r.Way != "" {
		s += " by " + r.Way
	}
	s += fmt.Sprintf(": %s, %s, %s", plural(int(r.Answers), "answer"), bytesText(int64(r.Bytes)), plural(int(r.Failures), "failure"))
	switch {
	case r.Answering:
	case r.ErrorAt == nil:
		s += ", not asked yet"
	default:
		s += "; the last one at " + r.ErrorAt.Format(time.RFC3339) + ": " + r.Error
	}
	return s
}
