// Package accept takes connections from a listener for as long as it is there.
package accept

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
)

// Between attempts while there is no room for a connection.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// calm is how long there must have been room for every connection before a shortage is a new one.
const calm = time.Minute

// Acceptor accepts connections from a listener.
type Acceptor struct {
	l       net.Listener
	begins  func(error)
	waiting atomic.Bool
	last    time.Time // when there was last no room
}

// New returns an acceptor. begins, which may be nil, is called with the error when a shortage begins:
// the process has no file descriptor or memory for a connection, and had one for a minute before.
func New(l net.Listener, begins func(error)) *Acceptor {
	if begins == nil {
		begins = func(error) {}
	}
	return &Acceptor{l: l, begins: begins}
}

// shortages counts them in this process.
var shortages atomic.Uint64

// Shortages returns how many shortages there were, of all listeners.
func Shortages() uint64 { return shortages.Load() }

// Short reports whether connections wait for a file descriptor or memory.
func (a *Acceptor) Short() bool { return a.waiting.Load() }

// Next accepts a connection. On EMFILE, ENFILE, ENOBUFS and ENOMEM it retries with backoff until
// over is closed: a flood of connections, to whatever port, must not end the service. Any other
// error is the end of the listener. One goroutine at a time calls Next.
func (a *Acceptor) Next(over <-chan struct{}) (net.Conn, error) {
	defer a.waiting.Store(false)
	for pauses := backoff.New(shortPause, longPause); ; {
		conn, err := a.l.Accept()
		if err == nil || !scarce(err) {
			return conn, err
		}
		a.waiting.Store(true)
		if time.Since(a.last) > calm {
			shortages.Add(1)
			a.begins(err)
		}
		a.last = time.Now()
		if !pauses.WaitUnless(over) {
			return nil, err
		}
	}
}

func scarce(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
