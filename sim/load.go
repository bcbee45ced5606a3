package sim

import "math"

// The script of the load, in seconds since Config.Start.
const (
	loadFrom = 15
	loadTo   = 125
	ramp     = 5   // how long the load takes to rise and to fall
	again    = 600 // when the script begins anew
)

// use is how busy the unit is at that second of the script, in 0..1: between
// idle and load, with a slow wave and a little noise of its own.
func (u *unit) use(second float64) float64 {
	busy := u.idle + (u.load-u.idle)*script(second)
	wave := 0.006 * math.Sin(2*math.Pi*(second/420+fraction(u.seed)))
	return math.Min(math.Max(busy+wave+0.004*u.noise(second), 0), 1)
}

// script is the part of the load in 0..1.
func script(second float64) float64 {
	if second < 0 {
		return 0
	}
	second = math.Mod(second, again)
	up, down := (second-loadFrom)/ramp, (loadTo+ramp-second)/ramp
	return math.Min(math.Max(math.Min(up, down), 0), 1)
}

// noise is in -1..1, and a straight line between whole seconds. It is a function
// of the seed and the time, not a stream, so that it does not matter how often
// it is asked.
func (u *unit) noise(second float64) float64 {
	whole, part := math.Floor(second), second-math.Floor(second)
	at := func(s float64) float64 { return 2*fraction(scramble(u.seed^uint64(int64(s)))) - 1 }
	return at(whole)*(1-part) + at(whole+1)*part
}

// fraction maps a hash to 0..1.
func fraction(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// scramble spreads every bit of x over all others: multiplication by odd
// constants alternating with shifts, as integer hashes do.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
