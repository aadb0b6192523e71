package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Conn is a connected queue pair. Its methods are safe for concurrent use.
type Conn struct {
	id       *cmID
	prepared *prepared
	private  []byte
	closing  sync.Mutex
	shut     bool        // Close has left
	leaving  atomic.Bool // this side ends the connection
}

// connect is the active side's part from the route on.
func (i *cmID) connect(ctx context.Context, cfg *ConnConfig) (*Conn, error) {
	p, err := i.prepare(cfg, verbs.RC, MaxRequestData)
	if err != nil {
		return nil, err
	}
	c := &Conn{id: i, prepared: p}
	ev, err := i.step(ctx, "connect", eventConnectResponse, func() error { return cgo.CMConnect(i.id, &p.param) })
	if err == nil {
		c.private = privateData(ev)
		if err = i.toRTS(p.setup.QP, -1, -1, true); err != nil {
			i.do("reject", func() error { return cgo.CMReject(i.id, nil) })
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.abandon())
	}
	c.watch()
	return c, nil
}

// abandon gives back what was prepared for a connection that did not come.
func (c *Conn) abandon() error {
	q := c.prepared.setup.QP
	err := q.ToError() // what Setup posted is flushed
	return errors.Join(err, c.prepared.close())
}

// watch follows the peer's end from now on: then receives that will not be filled
// any more are flushed.
func (c *Conn) watch() {
	i, q := c.id, c.prepared.setup.QP
	i.watch.Lock()
	defer i.watch.Unlock()
	driver.SetPeer(q, c.prepared.setup.Remote.String())
	i.ended = func() { driver.Fail(q, i.cause) }
	// A queue pair that failed is the end of the connection, and the peer learns
	// of it at once.
	driver.OnEnd(q, func(cause error) {
		if c.leaving.Load() {
			return
		}
		i.do("disconnect", func() error { return cgo.CMDisconnect(i.id) })
		i.end(cause)
	})
	if !c.prepared.setup.peerDecides {
		driver.KeepAlive(q)
	}
	select {
	case <-i.down:
		i.ended()
	default:
	}
}

// QP is the queue pair of the connection.
func (c *Conn) QP() *verbs.QP { return c.prepared.setup.QP }

// CQ is the completion queue that the connection made for itself; nil if Setup
// made the queue pair.
func (c *Conn) CQ() *verbs.CQ { return c.prepared.cq }

// Device is the device of the connection.
func (c *Conn) Device() *verbs.Device { return c.prepared.setup.Device }

// LocalAddr is the address of this side.
func (c *Conn) LocalAddr() netip.AddrPort { return c.prepared.setup.Local }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.prepared.setup.Remote }

// PrivateData is what the peer's program sent with its request or its reply, padded with
// zeros.
func (c *Conn) PrivateData() []byte { return c.private }

// Done is closed when the connection has ended: [Conn.Err] says why. The
// queue pair is in [verbs.StateError] from then on; what was received before is in
// its completion queue.
func (c *Conn) Done() <-chan struct{} { return c.id.down }

// Err is nil while the connection stands, and then [ErrDisconnected],
// [ErrDeviceRemoved], [verbs.ErrUnreachable], or how the queue pair failed
// ([verbs.QP.Err]).
func (c *Conn) Err() error {
	select {
	case <-c.id.down:
		return operr.New("use", c.id.life.Label, c.id.cause)
	default:
		return nil
	}
}

// Disconnect ends the connection and waits until the peer knows. Sends that have not
// completed are flushed, so wait for them first. The object stays open until Close.
func (c *Conn) Disconnect(ctx context.Context) error {
	select {
	case <-c.id.down:
		return nil
	default:
	}
	if c.id.interrupted() {
		return operr.New("disconnect", c.id.life.Label, verbs.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return operr.New("disconnect", c.id.life.Label, err)
	}
	c.leaving.Store(true)
	q := c.prepared.setup.QP
	if err := q.ToError(); err != nil && !errors.Is(err, verbs.ErrClosed) {
		c.leaving.Store(false)
		return err
	}
	if err := c.id.do("disconnect", func() error { return cgo.CMDisconnect(c.id.id) }); err != nil {
		return err
	}
	select {
	case <-c.id.down:
		return nil
	case <-c.id.closed:
		return operr.New("disconnect", c.id.life.Label, verbs.ErrClosed)
	case <-ctx.Done():
		return operr.New("disconnect", c.id.life.Label, ctx.Err())
	}
}

// closeGrace is how long a connection that was closed waits for the peer's reply. A peer
// that is gone learns of it from its own timeouts.
const closeGrace = 500 * time.Millisecond

// Close disconnects and closes what the connection made for itself. It does not wait for
// the peer, which may be gone: [CM.Close] does, for half a second at most. A queue pair
// from Setup is brought to [verbs.StateError] and left to the program. Closing twice is
// not an error.
func (c *Conn) Close() error {
	c.closing.Lock() // a second Close waits for the first
	defer c.closing.Unlock()
	var err error
	if !c.shut {
		c.shut = true
		err = c.leave()
	}
	err = errors.Join(err, c.prepared.close())
	c.prepared.dev.closeIfRemoved() // if this was the last on it
	return err
}

// leave disconnects, and closes the id when the peer has replied or has had the time to.
func (c *Conn) leave() error {
	i := c.id
	select {
	case <-i.down:
		return i.close()
	default:
	}
	c.leaving.Store(true)
	err := c.prepared.setup.QP.ToError()
	if err == nil || errors.Is(err, verbs.ErrClosed) {
		err = i.do("disconnect", func() error { return cgo.CMDisconnect(i.id) })
	}
	if err != nil {
		i.cm.log.Debug("close without the peer", "id", i.life.Label, "err", err)
		return i.close()
	}
	i.interrupt()
	Linger(i.cm, func() {
		grace := time.NewTimer(closeGrace)
		defer grace.Stop()
		select {
		case <-i.down:
		case <-grace.C:
		}
		if err := i.close(); err != nil {
			i.cm.log.Error("close", "id", i.life.Label, "err", err)
		}
		c.prepared.dev.closeIfRemoved()
	})
	return nil
}
