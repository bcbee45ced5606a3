package scrape

// reason is why a sample of a page is not stored. 0 means that nothing is wrong.
type reason uint8

const (
	fine reason = iota
	reservedName
	duplicate
	outOfOrder
	tooOld
	future
	dcgmBlank
	dcgmRange
	noSensor
	amdBlank
	numReasons
)

// reasonWords hold, for each reason, what became of the sample and why, in the
// words of wattloop_scrape_samples_total, and what is said of it once.
var reasonWords = [numReasons]struct{ result, name, text string }{
	reservedName: {"refused", "reserved_name", "a name that only the program itself may write"},
	duplicate:    {"refused", "duplicate", "its series is on the page twice, or has another value at that time"},
	outOfOrder:   {"refused", "out_of_order", "its time is before what its series has"},
	tooOld:       {"refused", "too_old", "its time is older than the out-of-order window"},
	future:       {"refused", "future", "its time is more than 60 s ahead of this machine's clock"},
	dcgmBlank:    {"blank", "dcgm_blank", "DCGM has no reading there"},
	dcgmRange:    {"blank", "dcgm_percent", "a percentage outside 0 to 100 is no reading"},
	noSensor:     {"blank", "no_sensor", "0 °C is a memory without a sensor"},
	amdBlank:     {"blank", "amd_blank", "AMD's exporter has no reading there"},
}

// blank reasons are gaps that the exporter reports itself.
func (r reason) blank() bool { return reasonWords[r].result == "blank" }
