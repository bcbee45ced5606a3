package sim

import (
	"fmt"
	"math"
)

// model is what is true of every unit of its kind. Powers are watts, times
// seconds.
type model struct {
	name       string  // unit i is called name<i>
	typ        string  // hw.type
	static     float64 // drawn whatever the load
	dynamic    float64 // drawn on top at full use and full frequency
	idle, load float64 // use in 0..1
	response   float64 // time constant with which power follows load and cap
	resistance float64 // kelvin a watt, from the unit to the air
	mass       float64 // joule a kelvin
	maxHertz   float64
}

var (
	packageModel = model{name: "cpu", typ: "cpu", static: 35, dynamic: 175, idle: 64. / 175, load: 155. / 175, response: 0.8, resistance: 0.24, mass: 160, maxHertz: 3.2e9}
	memoryModel  = model{name: "dram", typ: "memory", static: 9, dynamic: 12, idle: 0.3, load: 0.8, response: 0.5, resistance: 0.9, mass: 60}
	gpuModel     = model{name: "gpu", typ: "gpu", static: 60, dynamic: 200, idle: 0.3, load: 0.6, response: 1.5, resistance: 0.26, mass: 280}
	restModel    = model{name: "rest", static: 48, dynamic: 40, idle: 0.2, load: 0.7, response: 8, resistance: 0.1, mass: 500}
)

const (
	minFrequency = 0.25 // of the full one
	// exponent of power over frequency: voltage falls with it, not all the way.
	exponent = 2.4
	// hold is the part of its limit at which hardware settles: it keeps the
	// average under the limit, not at it.
	hold    = 0.99
	ambient = 24 // degrees Celsius of the air
)

// demand is the power at that use and full frequency.
func (m model) demand(use float64) float64 { return m.static + m.dynamic*use }

// unit is one package, memory or GPU.
type unit struct {
	model
	id     string
	parent string
	seed   uint64

	cap       float64 // watts; 0: none
	power     float64 // watts, now
	frequency float64 // of the full one
	joules    float64 // used since the node began
	celsius   float64
}

func newUnit(m model, i int, seed uint64) *unit {
	u := &unit{model: m, id: fmt.Sprintf("%s%d", m.name, i), frequency: 1}
	if m.typ == memoryModel.typ {
		u.parent = fmt.Sprintf("%s%d", packageModel.name, i)
	}
	u.seed = seed
	for _, b := range []byte(u.id) {
		u.seed = scramble(u.seed ^ uint64(b))
	}
	return u
}

// settle puts the unit into balance with its load at that second of the script.
func (u *unit) settle(second float64) {
	u.power = u.target(second)
	u.celsius = air(second) + u.resistance*u.power
}

// target is the power that the unit tends to: what its load wants at the
// frequency that its cap leaves. Under a cap below what it draws at the lowest
// frequency it draws that.
func (u *unit) target(second float64) float64 {
	use := u.use(second)
	u.frequency = 1
	if limit := hold * u.cap; u.cap > 0 && u.demand(use) > limit {
		u.frequency = math.Pow(math.Max(limit-u.static, 0)/(u.dynamic*use), 1/exponent)
		u.frequency = math.Max(u.frequency, minFrequency)
	}
	return u.static + u.dynamic*use*math.Pow(u.frequency, exponent)
}

// advance lets dt seconds pass under the load at that second of the script.
// Power nears its target exponentially, and energy is the exact integral of that
// curve, so that neither depends on how time is cut.
func (u *unit) advance(second, dt float64) {
	target := u.target(second)
	left := math.Exp(-dt / u.response)
	used := target*dt + (u.power-target)*u.response*(1-left)
	u.power = target + (u.power-target)*left
	u.joules += used

	balance := air(second) + u.resistance*used/dt
	u.celsius = balance + (u.celsius-balance)*math.Exp(-dt/(u.resistance*u.mass))
}

// air is the temperature of the air at the inlet.
func air(second float64) float64 { return ambient + 0.8*math.Sin(2*math.Pi*second/1700) }
