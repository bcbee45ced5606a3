package twin

import "fmt"

// The control paths of a node.
const (
	PathCPU = "cpu"
	PathGPU = "gpu"
)

// Target is the cap that a spec asks for on one path, in watts of each package or
// GPU. Why says what keeps a target that is asked for from being watts.
type Target struct {
	Watts float64 // 0: none
	Why   string
}

// Target resolves what the spec asks for on a path. highest is the most that every
// device of the path takes, in watts, 0 where that is not known. A nil Spec asks
// for nothing.
func (s *Spec) Target(path string, highest float64) Target {
	watts, percent := s.asked(path)
	switch {
	case watts != nil:
		return Target{Watts: *watts}
	case percent == nil:
		return Target{}
	case highest <= 0:
		return Target{Why: fmt.Sprintf("%g percent of the maximum is asked for, and no maximum of the %ss is known: ask for watts", *percent, path)}
	}
	return Target{Watts: *percent / 100 * highest}
}

func (s *Spec) asked(path string) (watts, percent *float64) {
	switch {
	case s == nil:
	case path == PathCPU && s.CPU != nil:
		return s.CPU.PackagePowerCapWatts, s.CPU.PackagePowerCapPctOfMax
	case path == PathGPU && s.GPU != nil && s.GPU.PowerCap != nil:
		return s.GPU.PowerCap.CapWattsPerGPU, s.GPU.PowerCap.CapPctOfMax
	}
	return nil, nil
}
