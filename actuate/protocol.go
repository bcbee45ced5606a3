package actuate

import "encoding/json"

// Operations of a Command.
const (
	OpSet     = "set"     // bring the device to Value, under a lease of TTLMillis
	OpRenew   = "renew"   // the lease runs anew, the value stands
	OpHold    = "hold"    // input lost, purpose protection: the value stands without a lease
	OpRelease = "release" // give the original back
)

// Command is one order of the engine for one device. The warden trusts nothing
// in it: the device must be one of its own, TTLMillis and Value are brought
// into its limits, and a command without a control is refused.
type Command struct {
	Seq       uint64  `json:"seq"` // chosen by the engine; the Reply repeats it
	Op        string  `json:"op"`
	Device    string  `json:"device"`          // Description.ID
	Value     float64 `json:"value,omitempty"` // in the device's unit; of a set
	Strict    bool    `json:"strict,omitempty"`
	Control   string  `json:"control"`
	Key       string  `json:"key,omitempty"` // of the control; with Control it names the owner
	Purpose   string  `json:"purpose,omitempty"`
	OnStop    string  `json:"on_stop,omitempty"` // "" or "hold"; counts for protection alone
	TTLMillis int64   `json:"ttl_ms,omitempty"`
	SafeCap   float64 `json:"safe_cap,omitempty"` // in the device's unit; protection: what HOLDING ends in
}

// Reply says what became of one Command. Applied is what was read back from
// the hardware, Granted what the warden's limits left of the value asked.
type Reply struct {
	Seq     uint64  `json:"seq"`
	Device  string  `json:"device"`
	Granted float64 `json:"granted"`
	Applied float64 `json:"applied"`
	Result  string  `json:"result"` // Applied, Blocked, Error or None
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	Clamped bool    `json:"clamped,omitempty"`
}

// States of a device, as DeviceState.State and `caps list` spell them.
const (
	StateArmed         = "armed"          // nothing of ours on it
	StateApplied       = "applied"        // our value, under a live lease
	StateHolding       = "holding"        // protection without a lease: the last good value stands
	StateSafe          = "safe_cap"       // protection: max_hold has passed
	StateRestoring     = "restoring"      // the original is being given back
	StateRestoreFailed = "restore_failed" // and could not be; tried for ever
	StateContested     = "contested"      // somebody else keeps raising it: left to them
	StateExternal      = "external"       // somebody else set it lower than we did: left to them
	StateGone          = "gone"           // unplugged
)

// DeviceState is what the warden knows of one device. Low and High are the
// limits within which it grants a value now; where Low is above High it grants
// none.
type DeviceState struct {
	Description
	Current     float64 `json:"current"`            // last read from the hardware
	Original    float64 `json:"original"`           // what a restore gives back; Current while nothing of ours is on it
	Granted     float64 `json:"granted"`            // what the owner was granted; 0 without an owner
	Clamped     bool    `json:"clamped,omitempty"`  // Granted or Current is not what the owner asked
	Owner       string  `json:"owner,omitempty"`    // the control whose value is on it
	Key         string  `json:"key,omitempty"`      // and that control's key
	Purpose     string  `json:"purpose,omitempty"`  // of the owner
	OnStop      string  `json:"on_stop,omitempty"`  // of the owner
	SafeCap     float64 `json:"safe_cap,omitempty"` // of the owner
	State       string  `json:"state"`
	LeaseMillis int64   `json:"lease_ms"` // left; 0 without a live lease
	Latched     bool    `json:"latched"`  // by `caps restore`, until `caps resume`
	Enabled     bool    `json:"enabled"`  // actuation.enabled
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	// Rejects says that a value outside of them is blocked instead of clamped
	// (actuation.reject_out_of_range).
	Rejects bool `json:"rejects_out_of_range,omitempty"`
	// Reason says why a set would be blocked now, or what alarm stands. It is not
	// Description.Reason, which says why the device cannot be written at all.
	Reason string `json:"state_reason,omitempty"`
}

// Reasons of a blocked or failed command, one word each, for Reply.Reason and
// DeviceState.Reason.
const (
	ReasonDisabled      = "actuation_disabled"  // actuation.enabled is false
	ReasonObserving     = "observing"           // observe_first has not passed yet
	ReasonLatched       = "latched"             // by `caps restore`
	ReasonNotSaved      = "originals_not_saved" // the journal could not be made durable
	ReasonNotWritable   = "not_writable"        // read-only, locked, no permission
	ReasonOutOfRange    = "out_of_range"        // no value is left between the limits, or it is not to be clamped
	ReasonExternalLower = "external_lower"      // somebody else holds it lower
	ReasonContested     = "contested"           // somebody else keeps raising it
	ReasonShuttingDown  = "shutting_down"       // the warden is giving everything back
	ReasonOverridden    = "overridden_by"       // a protection control holds it lower
	ReasonNoDevice      = "no_device"           // not one of the warden's
	ReasonGone          = "gone"                // unplugged
	ReasonNoLease       = "no_lease"            // renew or hold of a lease that is not there
	ReasonNotOwner      = "not_owner"           // release by a control that owns nothing there
	ReasonBadCommand    = "bad_command"         // an unknown op, NaN, a negative value, no control
	ReasonBusy          = "busy"                // too many commands are waiting
	ReasonGroup         = "group"               // another device of the same control stands in the way
	ReasonRolledBack    = "rolled_back"         // another device of the same control failed
	ReasonReadBack      = "readback_mismatch"   // the hardware did not take the value
	ReasonWriteFailed   = "write_failed"        // the write failed, three times
	ReasonReadFailed    = "read_failed"         // the device cannot be read
	ReasonNotIntended   = "intent_not_recorded" // the record under run.path could not be written
	ReasonRestoreFailed = "restore_failed"      // the original could not be given back yet
	ReasonJournal       = "journal_corrupt"     // the originals are lost; `caps resume` clears it
	ReasonUnchanged     = "unchanged"           // applied without a write: the value stands already
	ReasonHolding       = "holding"             // applied, without fresh input
	ReasonRestored      = "restored"            // applied: the original is back
	ReasonHandedOver    = "handed_over"         // applied: left standing for a warden that follows at once
)

// ProtocolVersion is the version of the messages between engine and warden.
// Both are the same binary, so that any other version is an error.
const ProtocolVersion = 1

// MaxMessage is the size in bytes of the largest message; a longer one is
// refused by whoever receives it.
const MaxMessage = 128 << 10

// Types of a Message.
const (
	TypeHello     = "hello"     // warden: the first message, with Version
	TypeDevices   = "devices"   // warden: Devices, all or those that changed
	TypeMeters    = "meters"    // warden: Meters, their files beside the message (SCM_RIGHTS)
	TypeWelcome   = "welcome"   // warden: end of the greeting
	TypeReplies   = "replies"   // warden: Replies and Devices, for the commands of the same ID
	TypeReload    = "reload"    // warden: read the rules again
	TypeStop      = "stop"      // warden: come to an end
	TypeHeartbeat = "heartbeat" // engine: alive
	TypeReady     = "ready"     // engine: start-up is over, it serves
	TypeCommands  = "commands"  // engine: Commands
)

// Message is one packet between the engine and the warden: one JSON object in
// one packet of a SOCK_SEQPACKET pair.
type Message struct {
	Type     string        `json:"type"`
	Version  int           `json:"version,omitempty"`
	ID       uint64        `json:"id,omitempty"` // of a batch of commands
	Commands []Command     `json:"commands,omitempty"`
	Replies  []Reply       `json:"replies,omitempty"`
	Devices  []DeviceState `json:"devices,omitempty"`
	Meters   []MeterInfo   `json:"meters,omitempty"`
}

// MeterInfo describes one file that only root may open and that the warden
// hands to the engine open, for reading.
type MeterInfo struct {
	Name string          `json:"name"`
	Meta json.RawMessage `json:"meta,omitempty"` // whatever the opener says of it
}
