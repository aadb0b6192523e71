package srd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// PacketConn is an endpoint as a [net.PacketConn]: WriteTo sends a message and waits for
// its status, ReadFrom receives a message. Addresses are of type [Addr].
type PacketConn struct {
	ep          *Endpoint
	service     Service
	read, write deadline
}

var _ net.PacketConn = (*PacketConn)(nil)

// PacketConn returns the endpoint as a [net.PacketConn] that sends by service s. Closing
// it closes the endpoint.
func (ep *Endpoint) PacketConn(s Service) *PacketConn { return &PacketConn{ep: ep, service: s} }

func (c *PacketConn) failed(op string, to net.Addr, err error) error {
	switch {
	case c.ep.closed.Load():
		err = net.ErrClosed
	case errors.Is(err, context.Canceled): // at a deadline
		err = os.ErrDeadlineExceeded
	}
	return &net.OpError{Op: op, Net: "srd", Source: c.LocalAddr(), Addr: to, Err: err}
}

// ReadFrom receives a message. Bytes that do not fit into b are lost, as with UDP.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	var ms [1]Message
	if _, err := c.ep.Receive(c.read.context(), ms[:]); err != nil {
		return 0, nil, c.failed("read", nil, err)
	}
	n, from := copy(b, ms[0].Data), ms[0].From
	c.ep.Release(ms[0])
	return n, from, nil
}

// WriteTo sends a message and waits for its status.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(Addr)
	if !ok {
		return 0, c.failed("write", to, fmt.Errorf("%w: an address of another network", verbs.ErrAttributes))
	}
	if err := c.ep.send(c.write.context(), a, c.service, [][]byte{b}); err != nil {
		return 0, c.failed("write", to, err)
	}
	return len(b), nil
}

// LocalAddr returns the endpoint's address.
func (c *PacketConn) LocalAddr() net.Addr { return c.ep.Addr() }

// SetDeadline, SetReadDeadline and SetWriteDeadline set when calls end, including calls
// that already wait.
func (c *PacketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *PacketConn) SetReadDeadline(t time.Time) error  { return c.set(&c.read, t) }
func (c *PacketConn) SetWriteDeadline(t time.Time) error { return c.set(&c.write, t) }

func (c *PacketConn) set(d *deadline, t time.Time) error {
	if c.ep.closed.Load() {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}

// Close closes the endpoint.
func (c *PacketConn) Close() error { return c.ep.Close() }
