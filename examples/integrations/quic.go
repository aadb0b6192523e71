package integrations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// Addr is the [net.Addr] of an endpoint.
type Addr struct{ srd.Addr }

// Network returns "srd".
func (Addr) Network() string { return "srd" }

// PacketConn is the [net.PacketConn] over an endpoint that a quic.Transport needs. A datagram is a
// message, and addresses are of type [Addr]. Messages are sent once ([srd.NoRetransmit]), since
// QUIC sends again what is lost. One that is longer than the path's MTU is cut into packets. There is
// no ECN: QUIC learns of congestion by loss and delay, and srd has windows of its own.
type PacketConn struct {
	ep *srd.Endpoint

	reading sync.Mutex
	message [1]srd.Message

	deadlines sync.Mutex
	ctx       context.Context // ends at the deadline of reads
	cancel    context.CancelFunc

	sending  sync.Mutex
	queue    *srd.SendQueue
	underway int
	done     [32]srd.Completion
}

const (
	datagrams = 1024                  // under way at most
	patience  = 10 * time.Millisecond // with one of them
)

// NewPacketConn returns the PacketConn of an endpoint without OnMessage, which belongs to it from
// then on.
func NewPacketConn(ep *srd.Endpoint) (*PacketConn, error) {
	queue, err := ep.NewQueue(srd.QueueConfig{Service: srd.NoRetransmit, Depth: datagrams})
	if err != nil {
		return nil, err
	}
	c := &PacketConn{ep: ep, queue: queue}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// ReadFrom waits for a datagram until the deadline. What does not fit into b is lost.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		c.deadlines.Lock()
		ctx := c.ctx
		c.deadlines.Unlock()
		_, err := c.ep.Receive(ctx, c.message[:])
		switch {
		case err == nil:
			defer c.ep.Release(c.message[0])
			return copy(b, c.message[0].Data), Addr{c.message[0].From}, nil
		case errors.Is(err, verbs.ErrClosed):
			return 0, nil, fmt.Errorf("%w: %w", net.ErrClosed, err)
		case ctx.Err() == context.DeadlineExceeded:
			return 0, nil, os.ErrDeadlineExceeded
		case ctx.Err() == nil: // or else there is another deadline
			return 0, nil, err
		}
	}
}

// WriteTo sends a datagram to an [Addr]. If too many are under way, it waits for
// 10 ms and then drops the datagram, as UDP does.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	peer, ok := to.(Addr)
	if !ok {
		return 0, fmt.Errorf("write to %v: want an Addr, not %T", to, to)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.underway == datagrams {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		n, err := c.queue.Wait(ctx, c.done[:])
		if n == 0 && ctx.Err() != nil {
			return len(b), nil
		} else if err != nil {
			return 0, err
		}
		c.underway -= n
	}
	if _, err := c.queue.Post(srd.Request{To: peer.Addr, Data: [][]byte{bytes.Clone(b)}}); err != nil {
		return 0, err
	}
	c.underway++
	return len(b), nil
}

// Close closes the endpoint. Datagrams under way may be lost.
func (c *PacketConn) Close() error { return errors.Join(c.queue.Close(), c.ep.Close()) }

// LocalAddr returns the address of the endpoint, which clients have to learn.
func (c *PacketConn) LocalAddr() net.Addr { return Addr{c.ep.Addr()} }

// SetReadDeadline sets the deadline of reads, also of one that waits. Zero means none.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.deadlines.Lock()
	defer c.deadlines.Unlock()
	c.cancel()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if !t.IsZero() {
		c.ctx, c.cancel = context.WithDeadline(context.Background(), t)
	}
	return nil
}

// SetDeadline is SetReadDeadline, since writes are short.
func (c *PacketConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *PacketConn) SetWriteDeadline(time.Time) error { return nil }

// Buffers are those of the endpoint. Without these functions quic-go logs a warning.
func (c *PacketConn) SetReadBuffer(int) error  { return nil }
func (c *PacketConn) SetWriteBuffer(int) error { return nil }
