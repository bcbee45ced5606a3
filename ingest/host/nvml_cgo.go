//go:build cgo

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxEvents bounds how many events one poll takes.
const maxEvents = 256

// openNVML loads NVIDIA's library.
func openNVML() (library, error) {
	lib := nvml.New()
	if err := failure(lib.Init()); err != nil {
		return nil, err
	}
	return &nvidia{lib: lib, has: func(symbol string) bool { return lib.Extensions().LookupSymbol(symbol) == nil }}, nil
}

// nvidia is the library, open.
type nvidia struct {
	lib nvml.Interface
	has func(symbol string) bool // a call of what an old library lacks would end the process
	set nvml.EventSet            // nil where no card gives events
}

func (n *nvidia) close() {
	if n.set != nil {
		n.set.Free()
	}
	n.lib.Shutdown()
}

func (n *nvidia) cards() ([]card, error) {
	count, r := n.lib.DeviceGetCount()
	if err := failure(r); err != nil {
		return nil, err
	}
	var out []card
	for i := range count {
		c, err := n.open(i)
		if err != nil {
			out = append(out, deadCard{identity{uuid: fmt.Sprintf("device %d", i)}, err})
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

func (n *nvidia) open(i int) (*nvidiaCard, error) {
	d, r := n.lib.DeviceGetHandleByIndex(i)
	if err := failure(r); err != nil {
		return nil, err
	}
	uuid, r := d.GetUUID()
	if err := failure(r); err != nil {
		return nil, err
	}
	c := &nvidiaCard{Device: d, has: n.has, who: identity{uuid: uuid, xids: n.listen(d)}}
	if name, r := d.GetName(); r == nvml.SUCCESS {
		c.who.name = name
	}
	return c, nil
}

// listen asks for the XID errors of a card. Not every one has them.
func (n *nvidia) listen(d nvml.Device) bool {
	if n.set == nil {
		set, r := n.lib.EventSetCreate()
		if r != nvml.SUCCESS {
			return false
		}
		n.set = set
	}
	return d.RegisterEvents(nvml.EventTypeXidCriticalError, n.set) == nvml.SUCCESS
}

func (n *nvidia) events() ([]xid, error) {
	if n.set == nil {
		return nil, errNotSupported
	}
	var out []xid
	for range maxEvents {
		e, r := n.set.Wait(0)
		if r == nvml.ERROR_TIMEOUT {
			break
		}
		if err := failure(r); err != nil {
			return out, err
		}
		if e.EventType != nvml.EventTypeXidCriticalError || e.Device == nil {
			continue
		}
		if uuid, r := e.Device.GetUUID(); r == nvml.SUCCESS {
			out = append(out, xid{uuid, e.EventData})
		}
	}
	return out, nil
}

// nvidiaCard is one device, or one MIG device.
type nvidiaCard struct {
	nvml.Device
	who identity
	has func(string) bool
}

func (c *nvidiaCard) identity() identity { return c.who }

func (c *nvidiaCard) instances() ([]card, error) {
	if !c.has("nvmlDeviceGetMaxMigDeviceCount") {
		return nil, nil
	}
	most, r := c.GetMaxMigDeviceCount()
	if err := failure(r); err != nil {
		return nil, err
	}
	var out []card
	for i := range most {
		d, r := c.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND {
			continue // this place is not taken
		}
		if err := failure(r); err != nil {
			return out, err
		}
		out = append(out, &nvidiaCard{Device: d, has: c.has})
	}
	return out, nil
}

// ask implements card. The calls that libraries before R450 may lack are looked
// for first.
func (c *nvidiaCard) ask(q query) (uint64, error) {
	switch q {
	case askEnergy:
		return c.unless("nvmlDeviceGetTotalEnergyConsumption", c.GetTotalEnergyConsumption)
	case askPower:
		return number(c.GetPowerUsage())
	case askTemperature:
		return number(c.GetTemperature(nvml.TEMPERATURE_GPU))
	case askGraphicsClock:
		return number(c.GetClockInfo(nvml.CLOCK_GRAPHICS))
	case askSMClock:
		return number(c.GetClockInfo(nvml.CLOCK_SM))
	case askMemoryClock:
		return number(c.GetClockInfo(nvml.CLOCK_MEM))
	case askVideoClock:
		return number(c.GetClockInfo(nvml.CLOCK_VIDEO))
	case askBusy, askMemoryBusy:
		u, r := c.GetUtilizationRates()
		if q == askBusy {
			return number(u.Gpu, r)
		}
		return number(u.Memory, r)
	case askEncoder:
		u, _, r := c.GetEncoderUtilization()
		return number(u, r)
	case askDecoder:
		u, _, r := c.GetDecoderUtilization()
		return number(u, r)
	case askMemoryUsed, askMemoryTotal:
		m, r := c.GetMemoryInfo()
		if q == askMemoryUsed {
			return number(m.Used, r)
		}
		return number(m.Total, r)
	case askReasons:
		return number(c.GetCurrentClocksThrottleReasons())
	case askReasonsKnown:
		return number(c.GetSupportedClocksThrottleReasons())
	case askECCCorrected:
		return number(c.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC))
	case askECCUncorrected:
		return number(c.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC))
	case askPCIeReplay:
		n, r := c.GetPcieReplayCounter()
		return number(uint32(n), r) // the library's own type
	case askLinksUp:
		return c.linksUp()
	case askPersistence:
		m, r := c.GetPersistenceMode()
		return number(uint32(m), r)
	case askDivided:
		if !c.has("nvmlDeviceGetMigMode") {
			return 0, errNotSupported
		}
		m, _, r := c.GetMigMode()
		return number(uint32(m), r)
	}
	if policy, ok := policies(q); ok {
		v, r := c.GetViolationStatus(policy)
		return number(v.ViolationTime, r)
	}
	return c.field(q)
}

func (c *nvidiaCard) unless(symbol string, call func() (uint64, nvml.Return)) (uint64, error) {
	if !c.has(symbol) {
		return 0, errNotSupported
	}
	return number(call())
}

func policies(q query) (nvml.PerfPolicyType, bool) {
	p, ok := map[query]nvml.PerfPolicyType{
		askPowerTime: nvml.PERF_POLICY_POWER, askThermalTime: nvml.PERF_POLICY_THERMAL,
		askSyncBoostTime: nvml.PERF_POLICY_SYNC_BOOST, askBoardLimitTime: nvml.PERF_POLICY_BOARD_LIMIT,
		askLowUtilTime: nvml.PERF_POLICY_LOW_UTILIZATION, askReliabilityTime: nvml.PERF_POLICY_RELIABILITY,
	}[q]
	return p, ok
}

// field asks for what the library has no call for. All links is the scope
// UINT_MAX; a field without links has the scope 0.
func (c *nvidiaCard) field(q query) (uint64, error) {
	id, ok := map[query]nvml.FieldValue{
		askMemoryTemp:   {FieldId: nvml.FI_DEV_MEMORY_TEMP},
		askLinkCRCFlit:  {FieldId: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
		askLinkCRCData:  {FieldId: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
		askLinkReplay:   {FieldId: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
		askLinkRecovery: {FieldId: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
		askLinkSent:     {FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: math.MaxUint32},
		askLinkReceived: {FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: math.MaxUint32},
	}[q]
	if !ok || !c.has("nvmlDeviceGetFieldValues") {
		return 0, errNotSupported
	}
	values := []nvml.FieldValue{id}
	if err := failure(c.GetFieldValues(values)); err != nil {
		return 0, err
	}
	if err := failure(nvml.Return(values[0].NvmlReturn)); err != nil {
		return 0, err
	}
	return decoded(values[0])
}

// decoded reads the union of a field's value, in the machine's byte order.
func decoded(v nvml.FieldValue) (uint64, error) {
	raw := v.Value[:]
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(raw)), nil
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(raw), nil
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(raw)), nil
	case nvml.VALUE_TYPE_SIGNED_INT:
		if n := int32(binary.NativeEndian.Uint32(raw)); n >= 0 {
			return uint64(n), nil
		}
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		if n := int64(binary.NativeEndian.Uint64(raw)); n >= 0 {
			return uint64(n), nil
		}
	}
	return 0, errNotSupported
}

// linksUp counts the NVLinks that are active; a card without any knows none.
func (c *nvidiaCard) linksUp() (uint64, error) {
	var up uint64
	for link := range nvml.NVLINK_MAX_LINKS {
		state, r := c.GetNvLinkState(link)
		switch {
		case r == nvml.SUCCESS && state == nvml.FEATURE_ENABLED:
			up++
		case r != nvml.SUCCESS && link == 0:
			return 0, failure(r)
		}
	}
	return up, nil
}

// number is an answer, or why there is none.
func number[N uint32 | uint64](n N, r nvml.Return) (uint64, error) {
	return uint64(n), failure(r)
}

// failure is a return code as an error. "Not supported", and what says the same
// of a place, a version or a driver that has no data, is errNotSupported.
func failure(r nvml.Return) error {
	switch r {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT,
		nvml.ERROR_NO_DATA, nvml.ERROR_VGPU_ECC_NOT_SUPPORTED, nvml.ERROR_DEPRECATED:
		return errNotSupported
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errNoLibrary
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("NVIDIA's driver is not loaded")
	case nvml.ERROR_UNINITIALIZED:
		return errors.New("the library was not initialised") // ErrorString would ask it
	}
	return errors.New(nvml.ErrorString(r))
}
