// Package hangup reports when the peer has closed a connection on which nothing else is
// expected to come. One goroutine watches all connections of the process, since each one of
// its own would have a stack of some kilobytes.
package hangup

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// Watch is a connection that is watched.
type Watch struct {
	conn    net.Conn
	raw     syscall.RawConn // nil: a goroutine of its own reads
	id      uint64
	ended   func(error)
	running sync.WaitGroup
}

// New takes over a connection. When its peer closes it, or it breaks, ended is called, once, in a
// goroutine of its own: with io.EOF or what is wrong. Bytes that come before are thrown away.
// ended is not called any more once Close has returned.
func New(conn net.Conn, ended func(error)) *Watch {
	w := &Watch{conn: conn, ended: ended}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			if w.raw = raw; shared.add(w) == nil {
				return w
			}
		}
	}
	w.raw = nil
	w.running.Go(w.read)
	return w
}

// read is for connections that cannot be polled.
func (w *Watch) read() {
	var b [64]byte
	for {
		if _, err := w.conn.Read(b[:]); err != nil {
			if !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
				w.ended(err)
			}
			return
		}
	}
}

// Close closes the connection.
func (w *Watch) Close() error {
	if w.raw != nil {
		shared.remove(w)
	}
	err := w.conn.Close()
	w.running.Wait()
	return err
}
