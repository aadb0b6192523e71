package gateway

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// inbound is a connection from which, once the gateway ends, what has arrived can still be read,
// and nothing that comes later. It counts what comes and goes.
type inbound struct {
	net.Conn
	s       *Server
	id      uint64
	tally   tally
	reading atomic.Bool  // it waits for a command, or for more of one
	heard   atomic.Int64 // when something was read, since the gateway began
	silent  bool         // for too long: it is given up
	asked   bool         // how many bytes have arrived
	left    int          // of them
}

// Read is [net.Conn]'s. One goroutine at a time calls it.
func (c *inbound) Read(b []byte) (int, error) {
	for {
		if c.s.draining.Load() {
			return c.rest(b)
		}
		c.reading.Store(true)
		n, err := c.Conn.Read(b)
		c.took(n)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !c.s.draining.Load() {
			c.silent = true
			return n, err
		}
	}
}

func (c *inbound) took(n int) {
	c.reading.Store(false)
	c.tally.add(bytesRead, n)
	c.heard.Store(int64(time.Since(c.s.begun)))
}

// Write is [net.Conn]'s.
func (c *inbound) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.tally.add(bytesWritten, n)
	return n, err
}

// rest reads what had arrived when it was first called. It does not wait.
func (c *inbound) rest(b []byte) (int, error) {
	if !c.asked {
		c.asked, c.left = true, arrived(c.Conn)
	}
	for c.left > 0 {
		if err := c.Conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(b[:min(len(b), c.left)])
		c.took(n)
		c.left -= n
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) { // Shutdown may have set one meanwhile
			return n, err
		}
	}
	return 0, os.ErrDeadlineExceeded
}
