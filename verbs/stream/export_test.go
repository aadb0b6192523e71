package stream

// HoldSends keeps the completions of sends from being polled, as a writer does that waits
// for one, until the function that it returns is called.
func HoldSends(s *Conn) (release func()) {
	s.smu.Lock()
	return s.smu.Unlock
}
