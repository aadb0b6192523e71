package verbs

import "errors"

// finish calls f until it returns. If a function of the program that f calls panics, or
// ends its goroutine, finish calls f again first, so that what is left gets done, and
// then the panic or [runtime.Goexit] goes on. f makes progress with each call.
func finish(f func()) {
	done := false
	defer func() {
		if !done {
			finish(f)
		}
	}()
	f()
	done = true
}

// errNoReturn is the cause where a function of the program has panicked or ended its
// goroutine.
var errNoReturn = errors.New("a function of the program panicked, or ended its goroutine")
