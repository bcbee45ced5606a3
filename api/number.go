package api

import (
	"encoding/json"
	"fmt"
	"math"
)

// Number is a float that is always valid JSON: a value that is not finite is
// the string NaN, +Inf or -Inf, as Prometheus writes it.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"+Inf"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Inf"`), nil
	default:
		return json.Marshal(f)
	}
}

// UnmarshalJSON implements json.Unmarshaler for clients of this API.
func (n *Number) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return json.Unmarshal(b, (*float64)(n))
	}
	f, ok := map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1), "-Inf": math.Inf(-1)}[s]
	if !ok {
		return fmt.Errorf("%q is no number", s)
	}
	*n = Number(f)
	return nil
}
