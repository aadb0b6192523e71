// Package closing closes what was made step by step.
package closing

import (
	"errors"
	"io"
	"slices"
)

// Stack are things that are closed together, the last one first.
type Stack []io.Closer

// Add adds what was made last.
func (s *Stack) Add(c io.Closer) { *s = append(*s, c) }

// Close closes all of them, whatever fails, and joins the errors. It may be called again if
// their own Close may.
func (s Stack) Close() error {
	var errs []error
	for _, c := range slices.Backward(s) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Func is a function as an [io.Closer].
type Func func() error

func (f Func) Close() error { return f() }
