package operr

// InFlight is the error of a call when its context ended while a device had its requests:
// verbs.InFlightError.
type InFlight struct {
	err    error
	done   chan struct{}
	result error
}

// NewInFlight returns an error like err, and the function by which the goroutine that waits
// for the requests sets their result, once.
func NewInFlight(err error) (e *InFlight, end func(result error)) {
	e = &InFlight{err: err, done: make(chan struct{})}
	return e, func(result error) {
		e.result = result
		close(e.done)
	}
}

func (e *InFlight) Error() string { return e.err.Error() }
func (e *InFlight) Unwrap() error { return e.err }

// Done returns a channel that is closed when the requests are over. From then on the device
// touches their memory no more.
func (e *InFlight) Done() <-chan struct{} { return e.done }

// Err returns nil before Done is closed, and then the result of the requests: nil if they
// were executed.
func (e *InFlight) Err() error {
	select {
	case <-e.done:
		return e.result
	default:
		return nil
	}
}
