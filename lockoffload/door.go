package lockoffload

import (
	"net"
	"sync"
	"time"
)

// handshakePatience is how long a client may take to say who it is.
const handshakePatience = 5 * time.Second

// door holds the connections of those who have not said yet who they are. When there
// are too many the one that came first goes: those who mean it take a few milliseconds.
type door struct {
	mu     sync.Mutex
	here   []net.Conn
	closed bool
}

const mostAtTheDoor = 256

// enter lets a connection in, or closes it.
func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		c.Close()
		return false
	}
	if len(d.here) == mostAtTheDoor {
		d.here[0].Close()
		d.here = d.here[1:]
	}
	d.here = append(d.here, c)
	return true
}

// leave is called when a connection has said who it is, or was closed.
func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.here {
		if o == c {
			d.here = append(d.here[:i], d.here[i+1:]...)
			return
		}
	}
}

// shut closes all of them and lets nobody in.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.here {
		c.Close()
	}
}
