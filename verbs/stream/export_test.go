package stream

// HoldSends keeps the completions of sends from being polled, as a writer does that waits
// for one, until the function that it returns is called.
func HoldSends(s *Conn) (release func()) {
	s.smu.Lock()
	return s.smu.Unlock
}

// SetRequestsOfSource sets how many requests of one address wait at the listeners that are made
// until the function that it returns is called.
func SetRequestsOfSource(n int) (restore func()) {
	before := requestsOfSource
	requestsOfSource = n
	return func() { requestsOfSource = before }
}
