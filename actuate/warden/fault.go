package warden

// The points in the life of a cap at which a test kills the process, in the
// order of actuation.md, section 5. At each of them a successor must find
// enough to bring the hardware back.
const (
	FaultBeforeSave     = "before save"
	FaultTmpWritten     = "between tmp write and rename"
	FaultRenamed        = "after rename before dir fsync"
	FaultRecorded       = "after intent record before write"
	FaultMidWrite       = "mid write across devices"
	FaultBeforeReadBack = "before read-back"
	FaultReadBack       = "after read-back before journal"
	FaultRenew          = "in renew"
	FaultMidRestore     = "in restore mid devices"
	FaultRestored       = "after restore before journal close"
	FaultLeftover       = "in start-up leftover handling"
	FaultReturned       = "in discovery after hotplug"
)
