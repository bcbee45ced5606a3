package main

import "time"

// clock is the wall clock, or one that runs speed times as fast since start.
// The demo gives one to the simulator, the time gate, the engine and the
// warden, in two processes, so that all of them agree on every instant.
type clock struct {
	start time.Time
	speed int
	told  func() time.Time // says the time instead, where a test tells a story
}

func wallClock() clock { return clock{start: time.Now(), speed: 1} }

// Now is the present time on this clock.
func (c clock) Now() time.Time {
	if c.told != nil {
		return c.told()
	}
	if c.speed <= 1 {
		return time.Now()
	}
	return c.start.Add(time.Since(c.start) * time.Duration(c.speed))
}

// Wall is how long the wall clock takes while this one advances by d.
func (c clock) Wall(d time.Duration) time.Duration { return d / time.Duration(max(c.speed, 1)) }
