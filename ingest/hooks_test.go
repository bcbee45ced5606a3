package ingest

// CheckCases is checkCases for tests from outside.
var CheckCases = checkCases

// Occupy counts n bytes as in flight for no channel until free is called, as n
// bytes of requests that are being worked on would.
func (s *Server) Occupy(n int64) (free func()) {
	nobody := &Channel{}
	s.r.inFlight.mu.Lock()
	defer s.r.inFlight.mu.Unlock()
	s.r.inFlight.add(nobody, n)
	return func() { s.r.inFlight.give(nobody, n) }
}

// Enter takes one of the channel's places for requests until leave is called.
func (c *Channel) Enter() (leave func(), err error) { return c.leave, c.enter(0) }

// Reserve counts n bytes as in flight for the channel until give is called.
func (c *Channel) Reserve(n int64) (give func(), err error) {
	return func() { c.r.inFlight.give(c, n) }, c.r.inFlight.take(c, n)
}

// InFlight is the number of bytes of requests that are being worked on.
func (s *Server) InFlight() int64 {
	s.r.inFlight.mu.Lock()
	defer s.r.inFlight.mu.Unlock()
	return s.r.inFlight.held
}
