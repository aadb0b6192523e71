package link

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// idle is how many free windows are kept.
const idle = 16

// Windows is registered memory that messages are sent from. A sender holds a window until its SENDs
// have completed, so a quiet connection holds none, and a connection with an unresponsive peer holds
// up no other. It is safe for several goroutines.
type Windows struct {
	pd     *verbs.PD
	mu     sync.Mutex
	closed bool
	free   []*verbs.MR
	pieces [][]byte // memory of streams, of a few frames each
}

// NewWindows returns memory in a protection domain, none of it allocated yet.
func NewWindows(pd *verbs.PD) *Windows { return &Windows{pd: pd} }

func (w *Windows) take() (*verbs.MR, error) {
	w.mu.Lock()
	if n := len(w.free); n > 0 {
		defer w.mu.Unlock()
		mr := w.free[n-1]
		w.free = w.free[:n-1]
		return mr, nil
	}
	w.mu.Unlock()
	return w.pd.AllocMR(window*Frame, verbs.MRConfig{})
}

// out reports whether all windows are in use.
func (w *Windows) out() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.free) == 0
}

func (w *Windows) give(mr *verbs.MR) error {
	w.mu.Lock()
	keep := !w.closed && len(w.free) < idle
	if keep {
		w.free = append(w.free, mr)
	}
	w.mu.Unlock()
	if keep {
		return nil
	}
	return mr.Close()
}

// drop is give for a polling goroutine, which may not free memory: trim does so.
func (w *Windows) drop(mr *verbs.MR) {
	w.mu.Lock()
	keep := !w.closed
	if keep {
		w.free = append(w.free, mr)
	}
	w.mu.Unlock()
	if !keep { // the end of all, where an error shows as memory that is still there
		_ = mr.Close()
	}
}

// trim frees windows that are too many.
func (w *Windows) trim() error {
	w.mu.Lock()
	n := len(w.free) - 1
	if n < idle {
		w.mu.Unlock()
		return nil
	}
	mr := w.free[n]
	w.free = w.free[:n]
	w.mu.Unlock()
	return mr.Close()
}

// buffer returns memory for a stream, or nil if there is none.
func (w *Windows) buffer() (b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.pieces); n > 0 {
		b, w.pieces = w.pieces[n-1], w.pieces[:n-1]
	}
	return b
}

// keep takes back memory that no stream needs now.
func (w *Windows) keep(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cap(b) > 0 && cap(b) <= window*Frame && len(w.pieces) < idle {
		w.pieces = append(w.pieces, b)
	}
}

// Close frees the windows that are not in use; the others are freed when they are given back.
func (w *Windows) Close() error {
	w.mu.Lock()
	w.closed = true
	free := w.free
	w.free = nil
	w.mu.Unlock()
	var errs []error
	for _, mr := range free {
		errs = append(errs, mr.Close())
	}
	return errors.Join(errs...)
}
