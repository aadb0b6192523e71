package dc

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

func (c *Control) post(id uint64) {
	c.recv.Recv(c.generation<<generationShift|id, c.mr.SGE(int(id)*controlStride, controlStride))
}

// send sends one message, or drops it: messages may be lost in any case. It does
// not wait for anything.
func (c *Control) send(to wire.ControlAddress, m *wire.Message) {
	m.From, m.MTU = c.at, wire.MTU(c.mtu)
	h := c.handles.get(way{to.GID, to.LID})
	if h == nil {
		c.handles.want(to, m)
		return
	}
	c.handles.age(h)
	c.sendBy(h, to, m)
	c.handles.put(h)
}

func (c *Control) sendBy(h *handle, to wire.ControlAddress, m *wire.Message) {
	c.mu.Lock()
	if c.busy() > controlSends/2 && !c.reap() {
		generation := c.generation
		c.mu.Unlock()
		c.dropped.Add(1)
		if c.qp.State() == verbs.StateError {
			c.log.Warn("dc: control queue restarted")
			c.work.Go(func() { c.broken(generation) })
		}
		return
	}
	defer c.mu.Unlock()
	id := c.posted.Load()
	off := (controlRecvs + int(id%controlSends)) * controlStride
	n := m.Encode(c.mr.Bytes()[off:])
	c.batch.SendTo(id, verbs.Signaled, verbs.Destination{AH: h.ah, QPN: to.QPN, QKey: to.QKey}, c.mr.SGE(off, n))
	if _, err := c.batch.Post(); err != nil {
		c.log.Warn("dc: control message not sent", "to", verbs.GID(to.GID), "err", err)
		c.dropped.Add(1)
		return
	}
	c.posted.Store(id + 1)
}

func (c *Control) busy() int { return int(c.posted.Load() - c.gone.Load()) }

// settle waits until the device has sent all messages: it loses what lies in a queue pair
// that is destroyed. A device does that in microseconds, and messages may be lost in any
// case, so the wait is short.
func (c *Control) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := time.Now().Add(settleTimeout); c.busy() > 0 && c.reap() && time.Now().Before(end); {
		time.Sleep(10 * time.Microsecond)
	}
}

const settleTimeout = 50 * time.Millisecond

// reap takes the completions of earlier sends, and reports whether there is room.
// A device may give up a queue pair if it could not send a packet of it, because the
// neighbour was unknown, say.
func (c *Control) reap() bool {
	for c.busy() > 0 {
		n, err := c.sendCQ.Poll(c.wcs[:])
		if err != nil {
			return false
		}
		for i := range c.wcs[:n] {
			if c.wcs[i].Err() != nil {
				c.log.Warn("dc: control queue", "err", c.wcs[i].Err())
				return false
			}
		}
		if n > 0 {
			c.gone.Store(c.wcs[n-1].ID() + 1)
			c.handles.completed()
		}
		if n < len(c.wcs) {
			break
		}
	}
	return c.busy() < controlSends
}

// read takes messages until the queue is closed.
func (c *Control) read() {
	var wcs [16]verbs.WC
	for {
		c.reading.Lock()
		inner := c.watch.enter(c.ctx)
		c.reading.Unlock()
		n, err := c.watch.wait(c.ctx, inner, wcs[:])
		c.reading.Lock()
		c.take(wcs[:n])
		c.watch.leave()
		c.reading.Unlock()
		if err != nil {
			if c.ctx.Err() == nil {
				c.log.Error("dc: control queue", "err", err)
			}
			return
		}
	}
}

// drain handles what has come and was not handled yet.
func (c *Control) drain() {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.watch.exclude()
	defer c.watch.admit()
	var wcs [16]verbs.WC
	for range 2 * controlRecvs / len(wcs) {
		n, err := c.recvCQ.Poll(wcs[:])
		if n == 0 || err != nil {
			return
		}
		c.take(wcs[:n])
	}
}

// take passes messages on, and posts their receives again.
func (c *Control) take(wcs []verbs.WC) {
	flushed := false
	var m wire.Message
	for i := range wcs {
		w := &wcs[i]
		if w.ID()>>generationShift != c.generation {
			continue
		}
		if w.Err() != nil {
			flushed = true
			break
		}
		id := w.ID() & (1<<generationShift - 1)
		packet := c.mr.Bytes()[int(id)*controlStride:][:w.Len()]
		if len(packet) < routeHeader || !m.Decode(packet[routeHeader:]) || m.From.QPN != w.SrcQP() || !comesFrom(packet, w.HasGRH(), w.SLID(), &m.From) || !c.pass(&m) {
			c.malformed.Add(1)
		}
		clear(packet[:min(routeHeader, len(packet))])
		c.post(id)
	}
	if flushed {
		generation := c.generation
		c.work.Go(func() { c.broken(generation) })
		return
	}
	if c.recv.Len() >= repostEvery || len(wcs) == 16 {
		if _, err := c.recv.Post(); err != nil {
			c.log.Error("dc: control queue", "err", err)
		}
	}
}

// comesFrom reports whether the sender that a message names is the one that the network
// names: replies go nowhere else. Devices leave the first half of the header
// undefined for a packet of IPv4; it was cleared before.
func comesFrom(packet []byte, routed bool, slid uint16, from *wire.ControlAddress) bool {
	const header, source = 20, 32
	switch g := verbs.GID(from.GID); {
	case !routed:
		return slid == from.LID
	case g.Addr().Is4():
		return packet[header]>>4 == 4 && [4]byte(packet[source:source+4]) == [4]byte(g[12:])
	default:
		return packet[0]>>4 == 6 && wire.GID(packet[8:24]) == from.GID
	}
}

// pass gives a message to the one it is for.
func (c *Control) pass(m *wire.Message) bool {
	c.routing.RLock()
	u, ok := c.routes[m.Sender]
	if !ok {
		u = c.rest
	}
	c.routing.RUnlock()
	if u.received == nil {
		return false
	}
	u.received(m)
	return true
}
