package dc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

const (
	controlRecvs  = 256
	controlSends  = 64
	signalEvery   = 16
	routeHeader   = 40 // in front of each datagram
	controlStride = 256
)

// control sends and receives control messages by one UD queue pair.
type control struct {
	pd      *verbs.PD
	gid     verbs.GIDEntry
	lid     uint16
	mtu     verbs.MTU
	recvCQ  *verbs.CQ
	sendCQ  *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR
	recv    *verbs.RecvBatch // of the reader
	log     *slog.Logger
	rubbish atomic.Uint64

	maxReads, maxInitReads uint8 // READs and atomics outstanding, as target and as initiator

	mu    sync.Mutex // of what follows
	batch *verbs.Batch
	ahs   map[place]*verbs.AH
	next  int
	busy  int // sends whose completion is not known
	// generation counts restarts: receives of an earlier one are not posted
	// again.
	generation int
	wcs        [16]verbs.WC
}

func newControl(pd *verbs.PD, gid verbs.GIDEntry, log *slog.Logger) (c *control, err error) {
	c = &control{pd: pd, gid: gid, log: log, ahs: make(map[place]*verbs.AH)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	dev := pd.Device()
	if c.gid == (verbs.GIDEntry{}) {
		if c.gid, err = dev.FindGID(verbs.GIDQuery{}); err != nil {
			return c, err
		}
	}
	port, err := dev.Port(c.gid.Port)
	if err != nil {
		return c, err
	}
	c.lid, c.mtu = port.LID, port.ActiveMTU
	attr := dev.Attr()
	c.maxReads = uint8(min(attr.MaxReadAtomic, 16))
	c.maxInitReads = min(c.maxReads, uint8(min(attr.MaxInitRead, 16)))
	if c.recvCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlRecvs}); err != nil {
		return c, err
	}
	if c.sendCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlSends, PollOnly: true}); err != nil {
		return c, err
	}
	// The Q_Key keeps packets of earlier owners of the queue pair number away.
	qkey := rand.Uint32() & 0x7fffffff
	if c.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: c.sendCQ, RecvCQ: c.recvCQ, GID: c.gid, QKey: qkey | 1,
		MaxSendWR: controlSends, MaxRecvWR: controlRecvs}); err != nil {
		return c, err
	}
	if c.mr, err = pd.AllocMR((controlRecvs+controlSends)*controlStride, verbs.MRConfig{}); err != nil {
		return c, err
	}
	if c.batch, err = c.qp.NewBatch(1); err != nil {
		return c, err
	}
	if c.recv, err = c.qp.NewRecvBatch(controlRecvs); err != nil {
		return c, err
	}
	return c, c.fill()
}

// fill posts all receives and brings the queue pair to work.
func (c *control) fill() error {
	for i := range controlRecvs {
		c.post(uint64(i))
	}
	if _, err := c.recv.Post(); err != nil {
		return err
	}
	return c.qp.Activate()
}

// restart makes a queue pair in error work again, with the same number. What
// was in it is lost, as messages may be. Called with mu held, as is everything
// that posts receives.
func (c *control) restart() error {
	c.generation++
	c.busy = 0
	if err := c.qp.ToReset(); err != nil {
		return err
	}
	for _, cq := range []*verbs.CQ{c.sendCQ, c.recvCQ} {
		for {
			n, err := cq.Poll(c.wcs[:])
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	c.recv.Reset()
	if err := c.qp.Init(); err != nil {
		return err
	}
	return c.fill()
}

func (c *control) post(id uint64) {
	c.recv.Recv(id, c.mr.SGE(int(id)*controlStride, controlStride))
}

// place is where peers send their messages.
func (c *control) place() (place, error) {
	e, err := c.qp.Endpoint()
	return place{gid: e.GID, qpn: e.QPN, qkey: e.QKey, lid: e.LID}, err
}

// send sends one message, or drops it: messages may be lost in any case.
func (c *control) send(to place, m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reap() {
		return
	}
	ah, err := c.address(to)
	if err != nil {
		c.log.Warn("dc: control message not sent", "to", to.gid, "err", err)
		return
	}
	off := (controlRecvs + c.next) * controlStride
	n := m.encode(c.mr.Bytes()[off:])
	var flags verbs.SendFlags
	if c.next%signalEvery == signalEvery-1 {
		flags = verbs.Signaled
	}
	c.batch.SendTo(0, flags, verbs.Dest{AH: ah, QPN: to.qpn, QKey: to.qkey}, c.mr.SGE(off, n))
	if _, err := c.batch.Post(); err != nil {
		c.log.Warn("dc: control message not sent", "to", to.gid, "err", err)
		return
	}
	c.next = (c.next + 1) % controlSends
	c.busy++
}

// reap takes the completions of earlier sends, and tells whether there is room.
// A device may give up a queue pair whose packet it could not send, because the
// neighbour was unknown, say.
func (c *control) reap() bool {
	for c.busy > 0 {
		n, err := c.sendCQ.Poll(c.wcs[:])
		if err != nil {
			return false
		}
		for i := range c.wcs[:n] {
			if werr := c.wcs[i].Err(); werr != nil {
				c.log.Warn("dc: control queue restarted", "err", werr)
				if err := c.restart(); err != nil {
					c.log.Error("dc: control queue", "err", err)
				}
				return true
			}
		}
		c.busy -= n * signalEvery
		if n < len(c.wcs) {
			break
		}
	}
	return c.busy < controlSends
}

func (c *control) address(to place) (*verbs.AH, error) {
	key := place{gid: to.gid, lid: to.lid}
	if ah := c.ahs[key]; ah != nil {
		return ah, nil
	}
	ah, err := c.pd.CreateAH(verbs.AHAttr{GID: to.gid, DLID: to.lid, SGIDIndex: c.gid.Index, Port: c.gid.Port})
	if err == nil {
		c.ahs[key] = ah
	}
	return ah, err
}

// read passes each well-formed message to each, until ctx ends.
func (c *control) read(ctx context.Context, each func(*message)) {
	var wcs [16]verbs.WC
	generation := 0
	for {
		n, err := c.recvCQ.Wait(ctx, wcs[:])
		if err != nil {
			if ctx.Err() == nil {
				c.log.Error("dc: control queue", "err", err)
			}
			return
		}
		flushed := false
		var m message
		for i := range wcs[:n] {
			w := &wcs[i]
			if w.Err() != nil {
				flushed = true
				break
			}
			packet := c.mr.Bytes()[int(w.ID())*controlStride:][:w.Len()]
			if len(packet) >= routeHeader && m.decode(packet[routeHeader:]) && m.from.qpn == w.SrcQP() && fromIPv4(packet, m.from.gid) {
				each(&m)
			} else {
				c.rubbish.Add(1)
			}
		}
		c.mu.Lock()
		if flushed || generation != c.generation {
			err = c.restart()
			generation = c.generation
		} else {
			for i := range wcs[:n] {
				c.post(wcs[i].ID())
			}
			_, err = c.recv.Post()
		}
		c.mu.Unlock()
		if err != nil {
			c.log.Error("dc: control queue", "err", err)
			return
		}
	}
}

// fromIPv4 compares the sender that a message names with the IPv4 header, if
// there is one: answers go nowhere else.
func fromIPv4(packet []byte, gid verbs.GID) bool {
	const header, source = 20, 32
	if !gid.Addr().Is4() || packet[header] != 0x45 {
		return true
	}
	return bytes.Equal(packet[source:source+4], gid[12:])
}

// close ends everything; nobody may be in read any more.
func (c *control) close() error {
	var errs []error
	if c.qp != nil {
		errs = append(errs, c.qp.Close())
	}
	for _, ah := range c.ahs {
		errs = append(errs, ah.Close())
	}
	if c.mr != nil {
		errs = append(errs, c.mr.Close())
	}
	for _, cq := range []*verbs.CQ{c.sendCQ, c.recvCQ} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	return errors.Join(errs...)
}
