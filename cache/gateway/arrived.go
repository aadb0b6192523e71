package gateway

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// inbound is a connection from which, once the gateway ends, what has arrived can still be read,
// and nothing that comes later.
type inbound struct {
	net.Conn
	ending *atomic.Bool
	asked  bool // how many bytes have arrived
	left   int  // of them
}

// Read is [net.Conn]'s. One goroutine at a time calls it.
func (c *inbound) Read(b []byte) (int, error) {
	for {
		if c.ending.Load() {
			return c.rest(b)
		}
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.ending.Load() {
			return n, err
		}
	}
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
		c.left -= n
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) { // Shutdown may have set one meanwhile
			return n, err
		}
	}
	return 0, os.ErrDeadlineExceeded
}
