package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// How a change of a setting comes into force.
const (
	changeRestart = "R" // at the next start
	changeLive    = "L" // at SIGHUP or POST /-/reload
	changeWarden  = "W" // stands in the warden's own file, read at start
)

// setting is one key: where it may come from and what it means.
type setting struct {
	key    string
	flag   string // "" = the key, noFlag = none
	env    []string
	value  pflag.Value
	change string
	help   string
}

// noFlag is for what nobody may read in a list of processes.
const noFlag = "-"

func (s setting) flagName() string {
	if s.flag != "" {
		return s.flag
	}
	return strings.ReplaceAll(s.key, "_", "-")
}

// variables are the environment variables that set it: WATTLOOP_KEY, and the
// names that other documents have promised.
func (s setting) variables() []string {
	own := "WATTLOOP_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.key))
	return append([]string{own}, s.env...)
}

// settings binds every key to c, with c's present values as defaults.
func (c *config) settings() []setting {
	return []setting{
		{"node", "", nil, str(&c.Node), "R", "node name stamped on the built-in sources (k8s.node.name)"},
		{"rules", "", nil, list(&c.Rules), "L", "drop-in folders or files, in order, over the presets"},
		{"rate_window", "", []string{"PROMETHEUS_RATE_WINDOW"}, dur(&c.RateWindow), "L", "window of every rate() of the presets; 0 leaves each file's own"},
		{"rate", "", nil, word(&c.Rate, "covered", "prometheus"), "L", "how rate() is read in files that do not say: covered or prometheus"},
		{"presets.node_power.use", "", []string{"NODE_POWER_PRESET"}, word(&c.PowerPreset, "otel", "kepler", "kepler-legacy"), "L", "whose metrics node_power and cpu_power are read from; unless set, what the rule files say, which is otel as shipped"},
		{"presets.node_power.scope", "", []string{"NODE_POWER_SCOPE"}, word(&c.PowerScope, "components", "host"), "L", "what node_power is: the CPU packages and GPUs, or the whole host by its own meter"},
		{"presets.node_power.source", "", []string{"NODE_POWER_SOURCE"}, word(&c.PowerSource, sourceStore, sourceHTTP, sourceNone), "L", "where node_power comes from: prometheus, the samples of the store; http, the endpoint pull.controller; none, nowhere"},
		{"presets.cpu_power.source", "", nil, word(&c.CPUSource, sourceStore, sourceHTTP), "L", "where cpu_power comes from: prometheus, the samples of the store; http, the endpoint pull.agent, as TELEMETRY_CPU_SOURCE=http has it"},
		{"presets.node_power.attributes", "", []string{"PROMETHEUS_RESOURCE_ATTRIBUTES"}, word(&c.Attributes, "auto", "labels", "target_info"), "L", "where the node of an OpenTelemetry series stands: in labels of its own, in target_info, or auto: its labels, and target_info where they do not answer"},
		{"presets.facility.enabled", "", []string{"ENABLE_FACILITY_METRICS"}, boolean(&c.Facility), "L", "read the six inputs of the facility"},
		{"naming", "", []string{"PROMETHEUS_NAME_TRANSLATION"}, word(&c.Naming, namings()...), "R", "how OTLP names become stored names; rules are written in the default's spelling and read what they name in any. Another strategy than the one that a store was filled under finds none of its series"},
		{"promote", "", nil, names(&c.Promote), "R", "resource attributes that become labels of every series of trusted senders"},
		{"attribute_prefix", "", nil, prefixValue{&c.AttrPrefix}, "R", "first words of the attributes that a workload channel sets of its actor, as in ate.actor.uid; ate stays reserved beside another"},
		{"storage.path", "", nil, file(&c.StoragePath), "R", "folder of the TSDB; state.path/data unless set. No samples are taken while its disk has less than 256 MiB free"},
		{"storage.retention.time", "", nil, dur(&c.RetentionTime), "R", "how long samples are kept"},
		{"storage.retention.size", "", nil, &c.RetentionSize, "R", "how much is kept; the size counts the WAL"},
		{"storage.out_of_order", "", nil, dur(&c.OutOfOrder), "R", "how far behind a sample may be"},
		{"storage.durability", "", nil, durability(&c.Durability), "R", "what an ack waits for: fsync, interval:DURATION, os"},
		{"storage.remote", "", nil, remoteValue{&c.Remote}, "R", "URL of a Prometheus-compatible engine that rules and queries read beside what this one makes itself (remote.md); the word prometheus takes it from PROMETHEUS_ADDRESS; empty is none"},
		{"storage.remote_http", "", nil, file(&c.RemoteHTTP), "R", "file with the credentials, CA and headers for storage.remote, as Prometheus's HTTP client configuration has them"},
		{"storage.remote_otlp", "", nil, otlpValue{&c.RemoteOTLP}, "R", "where metrics that are received go on to while there is storage.remote: a path under its URL, a whole URL, or none, which keeps them in this store"},
		{"storage.remote_queue", "", nil, &c.RemoteQueue, "R", "how much of that waits on disk, in state.path/remote, while it is not taken"},
		{"storage.remote_write", "", nil, urlValue{&c.Write}, "L", "URL that every committed sample is sent on to by Remote Write, like http://prometheus:9090/api/v1/write (remote.md); empty is none"},
		{"storage.remote_write_http", "", nil, file(&c.WriteHTTP), "L", "file with the credentials, CA and headers for storage.remote_write, as for storage.remote_http"},
		{"storage.remote_write_protobuf_message", "", nil, messageValue{&c.WriteMessage}, "L", "how they are written, in Prometheus's words: io.prometheus.write.v2.Request is Remote Write 2.0, prometheus.WriteRequest 1.0; auto is 2.0, and 1.0 where the receiver does not know that"},
		{"storage.remote_write_queue", "", nil, &c.WriteQueue, "R", "how much of that waits on disk, in state.path/remote_write, while it is not taken; beyond it the oldest goes"},
		{"state.path", "", nil, file(&c.StatePath), "R", "journals; state.path/warden is root's"},
		{"run.path", "", nil, file(&c.RunPath), "R", "the warden's intent record and lock, the sockets"},
		{"sysfs", "", nil, file(&c.Sysfs), "R", "root of the sysfs tree"},
		{"web.listen", "web.listen-address", nil, address(&c.WebListen), "R", "HTTP API; port 0 picks one; empty turns it off; beyond the loopback only with TLS and a credential for read"},
		{"web.config_file", "", nil, file(&c.WebConfig), "R", "TLS and basic authentication as exporter-toolkit has them, of web.listen and both of otlp; read again as it changes"},
		{"web.hosts", "", nil, names(&c.WebHosts), "L", "names that a request without a token may give as its Host, beside localhost and the address that it came to"},
		{"otlp.grpc.listen", "otlp.grpc.listen-address", nil, address(&c.GRPCListen), "R", "OTLP/gRPC; port 0 picks one; empty turns it off; beyond the loopback only with TLS and a credential for push"},
		{"otlp.http.listen", "otlp.http.listen-address", nil, address(&c.HTTPListen), "R", "OTLP/HTTP; port 0 picks one; empty turns it off; beyond the loopback only with TLS and a credential for push"},
		{"access", noFlag, nil, &c.Access, "L", "who may do what: a list of {role or roles, and one of token_file, token, user, peer: {uid, gid, user, group}}; docs/access.md"},
		{"api.socket", "", nil, file(&c.APISocket), "R", "unix socket of the command line, 0600, or 0666 where access names a peer; run.path/wattloop.sock unless set"},
		{"channels", "", nil, &c.Channels, "R", "further ways in, each with its own address, class and limits: a list of {name, listen, class, identity, nodes, gauge, limits, mode, group} (channels.md)"},
		{"scrape", "", nil, &c.Scrape, "L", "exporters of this node whose pages are read: a list of {url, interval, timeout, node, labels, http, sample_limit, body_size_limit} (scrape.md)"},
		{"pull.agent", "", []string{"TELEMETRY_CPU_HTTP_ENDPOINT"}, pullEndpoint(&c.PullAgent), "L", "URL with {node} that answers with OTLP JSON, which cpu_power of this node is read from while presets.cpu_power.source is http (pull.md)"},
		{"pull.controller", "", []string{"NODE_POWER_HTTP_ENDPOINT"}, pullEndpoint(&c.PullControl), "L", "the same for node_power of the nodes of pull.nodes, while presets.node_power.source is http"},
		{"pull.nodes", "", nil, names(&c.PullNodes), "L", "nodes whose power pull.controller is asked for; node unless set"},
		{"pull.http", "", nil, file(&c.PullHTTP), "L", "file with the credentials, CA and headers for both endpoints, as for storage.remote_http"},
		{"pull.interval", "", nil, dur(&c.PullInterval), "L", "time between two polls; at least 100ms"},
		{"pull.timeout", "", nil, dur(&c.PullTimeout), "L", "how long an answer may take"},
		{"host.enabled", "", nil, boolean(&c.HostEnabled), "R", "read this machine's own meters"},
		{"host.interval", "", nil, dur(&c.HostInterval), "R", "how often they are read; at least 100ms"},
		{"relay.upstream", "", nil, endpoint(&c.RelayUpstream), "R", "OTLP/gRPC endpoint that everything received goes on to, HOST:PORT or unix:PATH; empty is none"},
		{"relay.queue", "", nil, &c.RelayQueue, "R", "how much waits on disk, in state.path/relay, while relay.upstream takes nothing; a quarter is kept for what comes in on node channels"},
		{"relay.fallback", "", nil, endpoint(&c.RelayFallback), "R", "OTLP/gRPC endpoint, HOST:PORT or unix:PATH, that takes what comes in on node channels while relay.upstream cannot be reached; what comes in on workload channels never goes there; empty is none"},
		{"control.cpu", "", []string{"TELEMETRY_CPU_CONTROL"}, backend(&c.ControlCPU), "R", "what caps of the CPU packages go to: host, this machine; none, nothing is written"},
		{"control.gpu", "", []string{"TELEMETRY_GPU_CONTROL"}, backend(&c.ControlGPU), "R", "the same of GPUs"},
		{"twin.spec", "", nil, file(&c.TwinSpec), "L", "a file with the NodeTwin of this node, or its spec, that is followed as the target of the rule twin_spec_cpu_cap; without one the target is put over the API (joulie.md)"},
		{"legacy_json", "", nil, boolean(&c.LegacyJSON), "L", "read the legacy JSON from the endpoints of pull, and serve a node's power in it, each with one warning a process (pull.md, api.md)"},
		{"log.level", "", nil, word(&c.LogLevel, "debug", "info", "warn", "error"), "R", "what is logged"},
		{"engine.user", "", nil, str(&c.EngineUser), "W", "whom the engine becomes under root; wattloop, else nobody, unless set"},
		{"actuation.enabled", "", nil, boolean(&c.Enabled), "W", "nothing is written to hardware until true"},
		{"actuation.observe_first", "", nil, dur(&c.ObserveFirst), "W", "how long a device is watched before its first write"},
		{"actuation.clamps", "", nil, &c.Clamps, "W", "by device: {min, max, floor}; floor is a share of the default limit"},
		{"actuation.allow_raise", "", nil, boolean(&c.AllowRaise), "W", "a cap may lie above the value that was there before"},
		{"actuation.reject_out_of_range", "", nil, boolean(&c.RejectOut), "W", "a value outside the limits is blocked instead of clamped"},
		{"actuation.max_hold", "", nil, dur(&c.MaxHold), "W", "how long a protection cap is held before it goes to its safe cap"},
		{"actuation.ttl_max", "", nil, dur(&c.TTLMax), "W", "longest lease that a control can have; 5s to 300s"},
	}
}

// later are the keys of the configuration's design that this version does not
// have; they are refused by name, not as typing errors.
func later() []string {
	return []string{"cluster", "organization", "clusters",
		"control.endpoint", "control.serve", "reference", "recording", "mcp",
		"flags", "reload", "strict", "assume_running",
		"actuation.allow_mig", "actuation.ignore_gone", "actuation.partial", "actuation.restore_default_on_corrupt"}
}

func isLater(key string) bool {
	return slices.ContainsFunc(later(), func(l string) bool { return key == l || strings.HasPrefix(key, l+".") })
}

// addFlags registers a flag for each of the keys, for all of them without any,
// and for the files that they are read from.
func (c *config) addFlags(fl *pflag.FlagSet, keys ...string) {
	wanted := func(s setting) bool { return len(keys) == 0 || slices.Contains(keys, s.key) }
	set := slices.DeleteFunc(c.settings(), func(s setting) bool { return !wanted(s) })
	fl.StringVar(&c.File, "config.file", c.File, "configuration; may be absent at its default place")
	if slices.ContainsFunc(set, func(s setting) bool { return s.change == changeWarden }) {
		fl.StringVar(&c.WardenFile, "warden.file", c.WardenFile, "the warden's own configuration, owned by root; may be absent at its default place")
	}
	for _, s := range set {
		if s.flag == noFlag {
			continue
		}
		f := fl.VarPF(s.value, s.flagName(), "", s.help)
		if s.value.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}
