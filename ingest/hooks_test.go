package ingest

// Occupy counts n bytes as in flight until free is called, as n bytes of
// requests that are being worked on would.
func (s *Server) Occupy(n int64) (free func()) {
	s.r.inFlight.held.Add(n)
	return func() { s.r.inFlight.give(n) }
}

// InFlight is the number of bytes of requests that are being worked on.
func (s *Server) InFlight() int64 { return s.r.inFlight.held.Load() }
