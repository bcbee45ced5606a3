//go:build cgo

package host

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

func all(string) bool { return true }

// Each question reaches the call that it stands for, and "not supported" is no
// value, for calls and for fields (C60).
func TestNVMLQuestions(t *testing.T) {
	d := &mock.Device{
		GetTotalEnergyConsumptionFunc: func() (uint64, nvml.Return) { return 1, nvml.SUCCESS },
		GetPowerUsageFunc:             func() (uint32, nvml.Return) { return 2, nvml.SUCCESS },
		GetTemperatureFunc: func(s nvml.TemperatureSensors) (uint32, nvml.Return) {
			return 3 + uint32(s), nvml.SUCCESS
		},
		GetClockInfoFunc: func(c nvml.ClockType) (uint32, nvml.Return) { return 100 + uint32(c), nvml.SUCCESS },
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 11, Memory: 12}, nvml.SUCCESS
		},
		GetEncoderUtilizationFunc: func() (uint32, uint32, nvml.Return) { return 13, 1, nvml.SUCCESS },
		GetDecoderUtilizationFunc: func() (uint32, uint32, nvml.Return) { return 14, 1, nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			return nvml.Memory{Total: 16, Free: 1, Used: 15}, nvml.SUCCESS
		},
		GetCurrentClocksThrottleReasonsFunc:   func() (uint64, nvml.Return) { return 17, nvml.SUCCESS },
		GetSupportedClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 18, nvml.SUCCESS },
		GetTotalEccErrorsFunc: func(e nvml.MemoryErrorType, c nvml.EccCounterType) (uint64, nvml.Return) {
			return 200 + 10*uint64(e) + uint64(c), nvml.SUCCESS
		},
		GetPcieReplayCounterFunc: func() (int, nvml.Return) { return 19, nvml.SUCCESS },
		GetNvLinkStateFunc: func(link int) (nvml.EnableState, nvml.Return) {
			if link >= 4 {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.EnableState(link % 2), nvml.SUCCESS
		},
		GetPersistenceModeFunc: func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS },
		GetMigModeFunc:         func() (int, int, nvml.Return) { return 1, 0, nvml.SUCCESS },
		GetViolationStatusFunc: func(p nvml.PerfPolicyType) (nvml.ViolationTime, nvml.Return) {
			return nvml.ViolationTime{ReferenceTime: 1, ViolationTime: 300 + uint64(p)}, nvml.SUCCESS
		},
		GetFieldValuesFunc: func(vs []nvml.FieldValue) nvml.Return {
			v := &vs[0]
			v.ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
			binary.NativeEndian.PutUint64(v.Value[:], uint64(v.FieldId))
			if throughput := v.FieldId == nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX || v.FieldId == nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX; throughput != (v.ScopeId == 1<<32-1) {
				v.NvmlReturn = uint32(nvml.ERROR_UNKNOWN)
			}
			return nvml.SUCCESS
		},
	}
	c := &nvidiaCard{Device: d, has: all}
	for q, want := range map[query]uint64{
		askEnergy: 1, askPower: 2, askTemperature: 3, askGraphicsClock: 100, askSMClock: 101, askMemoryClock: 102, askVideoClock: 103,
		askBusy: 11, askMemoryBusy: 12, askEncoder: 13, askDecoder: 14, askMemoryUsed: 15, askMemoryTotal: 16, askReasons: 17, askReasonsKnown: 18,
		askECCCorrected: 200, askECCUncorrected: 210, askPCIeReplay: 19, askLinksUp: 2, askPersistence: 1, askDivided: 1,
		askPowerTime: 300, askThermalTime: 301, askSyncBoostTime: 302, askBoardLimitTime: 303, askLowUtilTime: 304, askReliabilityTime: 305,
		askMemoryTemp: nvml.FI_DEV_MEMORY_TEMP, askLinkCRCFlit: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
		askLinkCRCData: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, askLinkReplay: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
		askLinkRecovery: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
		askLinkSent:     nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, askLinkReceived: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
	} {
		if got, err := c.ask(q); got != want || err != nil {
			t.Errorf("question %d = %d, %v; want %d", q, got, err, want)
		}
	}
	old := &nvidiaCard{Device: d, has: func(string) bool { return false }}
	for _, q := range []query{askEnergy, askDivided, askMemoryTemp} {
		if _, err := old.ask(q); !errors.Is(err, errNotSupported) {
			t.Errorf("question %d to an old library = %v; want not supported", q, err)
		}
	}
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetFieldValuesFunc = func(vs []nvml.FieldValue) nvml.Return {
		vs[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		return nvml.SUCCESS
	}
	for _, q := range []query{askLinksUp, askPower, askLinkSent} {
		if v, err := c.ask(q); v != 0 || !errors.Is(err, errNotSupported) {
			t.Errorf("question %d = %d, %v; want not supported", q, v, err)
		}
	}
}

// The union of a field is read by its type; a negative value is none.
func TestNVMLFields(t *testing.T) {
	f := func(typ nvml.ValueType, raw uint64, want uint64, ok bool) {
		t.Helper()
		v := nvml.FieldValue{ValueType: uint32(typ)}
		binary.NativeEndian.PutUint64(v.Value[:], raw)
		if got, err := decoded(v); got != want || (err == nil) != ok {
			t.Errorf("type %d, %x = %d, %v; want %d, %v", typ, raw, got, err, want, ok)
		}
	}
	f(nvml.VALUE_TYPE_UNSIGNED_INT, 0xdeadbeef_00000007, 7, true)
	f(nvml.VALUE_TYPE_UNSIGNED_LONG, 1<<40, 1<<40, true)
	f(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 1<<40, 1<<40, true)
	f(nvml.VALUE_TYPE_SIGNED_LONG_LONG, 8, 8, true)
	f(nvml.VALUE_TYPE_SIGNED_LONG_LONG, 1<<63, 0, false)
	f(nvml.VALUE_TYPE_SIGNED_INT, 0xffffffff, 0, false)
	f(nvml.VALUE_TYPE_SIGNED_INT, 9, 9, true)
	f(nvml.VALUE_TYPE_DOUBLE, 1, 0, false)
}

// Cards, their events and their instances, by the library's own mock.
func TestNVMLLibrary(t *testing.T) {
	part := &mock.Device{}
	dev := &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetNameFunc:              func() (string, nvml.Return) { return "NVIDIA A100", nvml.SUCCESS },
		RegisterEventsFunc:       func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
		GetMaxMigDeviceCountFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		GetMigDeviceHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if i == 1 {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return part, nvml.SUCCESS
		},
	}
	deaf := &mock.Device{
		GetUUIDFunc:        func() (string, nvml.Return) { return "GPU-2", nvml.SUCCESS },
		GetNameFunc:        func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN },
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_NOT_SUPPORTED },
	}
	queue := []nvml.EventData{
		{Device: dev, EventType: nvml.EventTypeXidCriticalError, EventData: 79},
		{Device: dev, EventType: nvml.EventTypeClock, EventData: 1},
		{Device: dev, EventType: nvml.EventTypeXidCriticalError, EventData: 31},
	}
	set := &mock.EventSet{
		WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			if ms != 0 {
				t.Errorf("a poll waits %d ms for events", ms)
			}
			if len(queue) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			e := queue[0]
			queue = queue[1:]
			return e, nvml.SUCCESS
		},
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	lib := &mock.Interface{
		DeviceGetCountFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			return []nvml.Device{nil, dev, deaf}[i], []nvml.Return{nvml.ERROR_DRIVER_NOT_LOADED, nvml.SUCCESS, nvml.SUCCESS}[i]
		},
		EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
	}
	n := &nvidia{lib: lib, has: all}
	if got, err := n.events(); got != nil || !errors.Is(err, errNotSupported) {
		t.Errorf("events without a card = %v, %v", got, err)
	}
	cards, err := n.cards()
	if err != nil || len(cards) != 3 {
		t.Fatalf("cards = %v, %v", cards, err)
	}
	for i, want := range []identity{{uuid: "device 0"}, {"GPU-1", "NVIDIA A100", true}, {uuid: "GPU-2"}} {
		if got := cards[i].identity(); got != want {
			t.Errorf("card %d is %+v; want %+v", i, got, want)
		}
	}
	if _, err := cards[0].ask(askPower); err == nil || errors.Is(err, errNotSupported) {
		t.Errorf("a card that cannot be opened answers %v", err)
	}
	if parts, err := cards[1].instances(); err != nil || len(parts) != 2 {
		t.Errorf("instances = %v, %v; want the 2 that are there", parts, err)
	}
	got, err := n.events()
	if err != nil || len(got) != 2 || got[0] != (xid{"GPU-1", 79}) || got[1] != (xid{"GPU-1", 31}) {
		t.Errorf("events = %v, %v", got, err)
	}
	n.close()
	if len(set.FreeCalls()) != 1 || len(lib.ShutdownCalls()) != 1 {
		t.Error("close leaves the library open")
	}
}

// A machine without the library or the driver is not a card that lacks a value.
func TestNVMLFailures(t *testing.T) {
	if err := failure(nvml.ERROR_LIBRARY_NOT_FOUND); !errors.Is(err, errNoLibrary) {
		t.Errorf("no library = %v", err)
	}
	for _, r := range []nvml.Return{nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED} {
		if err := failure(r); err == nil || errors.Is(err, errNotSupported) || errors.Is(err, errNoLibrary) {
			t.Errorf("failure(%d) = %v", r, err)
		}
	}
}
