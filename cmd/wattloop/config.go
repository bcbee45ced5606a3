package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
	"github.com/wattloop/wattloop/ingest/relay"
	"github.com/wattloop/wattloop/store/remote"
)

// config holds every setting of wattloop.yaml that this version has, and those
// of the warden's own file. docs/config.md is generated from settings().
type config struct {
	File string // --config.file

	Node          string
	Rules         []string
	RateWindow    time.Duration
	Rate          string
	PowerPreset   string
	PowerScope    string
	PowerSource   string
	CPUSource     string
	Attributes    string
	Facility      bool
	Naming        string
	Promote       []string
	AttrPrefix    string
	StoragePath   string
	RetentionTime time.Duration
	RetentionSize byteSize
	OutOfOrder    time.Duration
	Durability    string
	StatePath     string
	RunPath       string
	Sysfs         string
	WebListen     string
	WebConfig     string
	WebHosts      []string
	Access        accessList
	GRPCListen    string
	HTTPListen    string
	APISocket     string
	Channels      channelList
	Scrape        scrapeList
	PullAgent     string
	PullControl   string
	PullNodes     []string
	PullHTTP      string
	PullInterval  time.Duration
	PullTimeout   time.Duration
	HostEnabled   bool
	HostInterval  time.Duration
	LogLevel      string
	Remote        string
	RemoteHTTP    string
	Write         string
	WriteMessage  remoteapi.WriteMessageType
	WriteHTTP     string
	WriteQueue    byteSize
	RemoteOTLP    string
	RemoteQueue   byteSize
	RelayUpstream string
	RelayFallback string
	RelayQueue    byteSize
	ControlCPU    string
	ControlGPU    string
	TwinSpec      string
	LegacyJSON    bool

	// The warden's own: never in wattloop.yaml.
	WardenFile   string
	Enabled      bool
	ObserveFirst time.Duration
	EngineUser   string
	Clamps       clamps
	AllowRaise   bool
	RejectOut    bool
	MaxHold      time.Duration
	TTLMax       time.Duration

	// engineOnly leaves the warden's settings alone: their file may be readable
	// by root only, and they are none of the engine's business.
	engineOnly bool

	memoryLimit int64 // bytes that limitMemory found, 0 for none

	origin map[string]string // key -> "default", "file PATH:LINE", "variable NAME" or "flag --NAME"
}

func defaultConfig() *config {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	c := &config{
		File: "/etc/wattloop/wattloop.yaml", WardenFile: "/etc/wattloop/warden.yaml",
		Node: host, Rules: []string{defaultRules}, Rate: "covered",
		PowerPreset: "otel", PowerScope: "components", PowerSource: sourceStore, CPUSource: sourceStore,
		PullInterval: 5 * time.Second, PullTimeout: 5 * time.Second,
		Attributes: "auto",
		Naming:     namings()[0], Promote: ingest.DefaultPromote(), AttrPrefix: "ate",
		StatePath: "/var/lib/wattloop", RetentionTime: 15 * 24 * time.Hour, RetentionSize: 8 << 30,
		OutOfOrder: 30 * time.Minute, Durability: "fsync",
		WebListen: "127.0.0.1:9464", GRPCListen: "127.0.0.1:4317", HTTPListen: "127.0.0.1:4318",
		Sysfs: findSysfs(mounts), HostEnabled: true, HostInterval: time.Second, LogLevel: "info", RelayQueue: relay.DefaultMaxBytes,
		ControlCPU: backendHost, ControlGPU: backendHost, LegacyJSON: true,
		ObserveFirst: 30 * time.Second, MaxHold: 15 * time.Minute, TTLMax: 300 * time.Second,
		RemoteOTLP: defaultOTLPPath, RemoteQueue: relay.DefaultMaxBytes, WriteQueue: remote.DefaultWriteQueue,
		origin: map[string]string{},
	}
	for _, s := range c.settings() {
		c.origin[s.key] = originDefault
	}
	return c
}

const originDefault = "default"

// load fills c: flag over variable over file over default. fl has been parsed.
// Every error is found in one run; what is not in error is in c all the same.
func (c *config) load(fl *pflag.FlagSet, env func(string) (string, bool)) error {
	flags := c.takeFlags(fl)
	errs := c.loadFiles(fl, env)
	errs = append(errs, c.loadVariables(env)...)
	for _, s := range c.own() {
		if v, ok := flags[s.key]; ok {
			if err := setItems(s.value, v); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", s.flagName(), err))
			}
			c.origin[s.key] = "flag --" + s.flagName()
		}
	}
	c.derive()
	errs = append(errs, c.deriveRemote(env))
	return errors.Join(append(errs, c.validate())...)
}

// own are the settings that this process may have.
func (c *config) own() []setting {
	var out []setting
	for _, s := range c.settings() {
		if !c.engineOnly || s.change != changeWarden {
			out = append(out, s)
		}
	}
	return out
}

// takeFlags is what the command line said, to be put back on top of the rest.
func (c *config) takeFlags(fl *pflag.FlagSet) map[string][]string {
	flags := map[string][]string{}
	for _, s := range c.own() {
		if f := fl.Lookup(s.flagName()); f != nil && f.Changed {
			flags[s.key] = items(f.Value)
		}
	}
	return flags
}

func (c *config) loadFiles(fl *pflag.FlagSet, env func(string) (string, bool)) []error {
	var errs []error
	for _, f := range []struct {
		path, flag string
		warden     bool
	}{{c.File, "config.file", false}, {c.WardenFile, "warden.file", true}} {
		if f.warden && c.engineOnly {
			continue
		}
		given := fl.Lookup(f.flag) != nil && fl.Lookup(f.flag).Changed
		if err := c.readFile(f.path, f.warden, given, env); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (c *config) loadVariables(env func(string) (string, bool)) []error {
	var errs []error
	for _, s := range c.own() {
		for _, name := range s.variables() {
			v, ok := env(name)
			if !ok || v == "" {
				continue
			}
			if err := setText(s.value, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", name, s.key, err))
			}
			c.origin[s.key] = "variable " + name
			break
		}
	}
	return append(errs, c.cpuSource(env)...)
}

// machineRun is run.path of the machine's own serve, which runs as root.
const machineRun = "/run/wattloop"

// derive fills the paths that hang on others.
func (c *config) derive() {
	fill := func(p *string, key, v string) {
		if *p == "" && c.origin[key] == originDefault {
			*p = v
		}
	}
	fill(&c.StoragePath, "storage.path", filepath.Join(c.StatePath, "data"))
	run := machineRun
	if os.Geteuid() != 0 {
		if x := os.Getenv("XDG_RUNTIME_DIR"); x != "" {
			run = filepath.Join(x, "wattloop")
		}
	}
	fill(&c.RunPath, "run.path", run)
	fill(&c.APISocket, "api.socket", filepath.Join(c.RunPath, "wattloop.sock"))
}

func (c *config) validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s (%s): %s", key, c.origin[key], fmt.Sprintf(format, args...)))
	}
	for _, p := range []struct{ key, path string }{{"storage.path", c.StoragePath}, {"state.path", c.StatePath}, {"run.path", c.RunPath}, {"sysfs", c.Sysfs}} {
		if p.path == "" {
			bad(p.key, "is empty; name a folder")
		}
	}
	type door struct{ key, addr string }
	var own []door
	for _, d := range []door{{"web.listen", c.WebListen}, {"otlp.grpc.listen", c.GRPCListen}, {"otlp.http.listen", c.HTTPListen}, {"api.socket", "unix:" + c.APISocket}} {
		for _, o := range own {
			if d.addr != "" && sameAddress(d.addr, o.addr) {
				bad(d.key, "%s is %s already", d.addr, o.key)
			}
		}
		own = append(own, d)
	}
	for _, ch := range c.Channels {
		for _, o := range own {
			if slices.ContainsFunc(ch.Spec.Listen, func(a listen.Address) bool { return sameAddress(a.String(), o.addr) }) {
				bad("channels", "%s: %s is %s already", ch.Spec.Name, o.addr, o.key)
			}
		}
	}
	if c.Node == "" {
		bad("node", "is empty; name the node")
	}
	c.validatePull(bad)
	if c.HostInterval < 100*time.Millisecond {
		bad("host.interval", "%s: at least 100ms", c.HostInterval)
	}
	if c.RelayQueue < 1<<20 {
		bad("relay.queue", "%s: at least 1MiB", c.RelayQueue.String())
	}
	if c.RemoteHTTP != "" && c.Remote == "" {
		bad("storage.remote_http", "there is no storage.remote that it is for")
	}
	if c.WriteHTTP != "" && c.Write == "" {
		bad("storage.remote_write_http", "there is no storage.remote_write that it is for")
	}
	if c.WriteMessage != "" && c.Write == "" {
		bad("storage.remote_write_protobuf_message", "there is no storage.remote_write that it is for")
	}
	if c.WriteQueue < 4<<20 {
		bad("storage.remote_write_queue", "%s: at least 4MiB", c.WriteQueue.String())
	}
	if c.RemoteQueue < 1<<20 {
		bad("storage.remote_queue", "%s: at least 1MiB", c.RemoteQueue.String())
	}
	if c.RelayFallback != "" && c.RelayUpstream == "" {
		bad("relay.fallback", "there is no relay.upstream to fall back from")
	}
	if c.TTLMax < 5*time.Second || c.TTLMax > 300*time.Second {
		bad("actuation.ttl_max", "%s: between 5s and 300s", c.TTLMax)
	}
	return errors.Join(errs...)
}

// readFile reads one file; an absent one is an error only when it was named.
func (c *config) readFile(path string, warden, given bool, env func(string) (string, bool)) error {
	b, err := os.ReadFile(path)
	switch {
	case err == nil && warden && ownersOnly(path) != nil:
		return ownersOnly(path)
	case err == nil:
		return c.apply(path, b, warden, env)
	case errors.Is(err, fs.ErrNotExist) && !given:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file; wattloop config init prints one to begin with", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: user %d may not read it; make it readable to that user", path, os.Geteuid())
	default:
		return fmt.Errorf("%s: %w", path, bare(err))
	}
}
