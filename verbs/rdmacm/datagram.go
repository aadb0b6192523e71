package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Peer is a way for datagrams: to a service that the connection manager has
// found, or to a multicast group.
type Peer struct {
	id       *cmID
	prepared *prepared
	ah       *verbs.AH
	dest     verbs.Destination
	private  []byte
	group    *cgo.SockAddr // joined, or nil
	attached verbs.GID
	lid      uint16
	closing  sync.Mutex
}

// DialUD finds the datagram service at "host:port" ([ListenConfig.Type] UD
// there) and returns how to send to it. The queue pair, from cfg.Setup or of
// the peer's own, is brought to [verbs.StateRTS]; one that is there already may
// serve for any number of peers. Its QKey becomes [UDPQKey].
func (m *CM) DialUD(ctx context.Context, address string, cfg DialConfig) (*Peer, error) {
	var p *Peer
	err := m.resolve(ctx, "datagram peer", portSpaceUDP, address, &cfg, func(ctx context.Context, id *cmID) (err error) {
		p, err = id.peer(&cfg.ConnConfig, func(c *Peer) (*cgo.CMEvent, error) {
			return id.step(ctx, "connect", eventEstablished, func() error { return cgo.CMConnect(id.id, &c.prepared.param) })
		})
		return err
	})
	return p, err
}

// Join joins the multicast group of an IP address, on the device of cfg.Local
// or of the route to the group. The queue pair receives what is sent to the
// group, and sends to it by [Peer.Destination]. Close leaves the group.
func (m *CM) Join(ctx context.Context, group netip.Addr, cfg DialConfig) (*Peer, error) {
	if err := ctx.Err(); err != nil {
		return nil, operr.New("join", group.String(), err)
	}
	to := netip.AddrPortFrom(group, 0)
	if !group.IsMulticast() {
		return nil, operr.New("join", group.String(), verbs.ErrAttributes, "not a multicast address")
	}
	id, err := m.newID("group", portSpaceUDP)
	if err != nil {
		return nil, err
	}
	p, err := id.join(ctx, to, &cfg)
	if err != nil {
		return nil, errors.Join(operr.New("join", group.String(), err), id.close())
	}
	return p, nil
}

func (i *cmID) join(ctx context.Context, to netip.AddrPort, cfg *DialConfig) (*Peer, error) {
	if err := i.findDevice(ctx, portSpaceUDP, to, cfg); err != nil {
		return nil, err
	}
	addr, err := sockAddr(to)
	if err != nil {
		return nil, err
	}
	return i.peer(&cfg.ConnConfig, func(c *Peer) (*cgo.CMEvent, error) {
		ev, err := i.step(ctx, "join by", eventMulticastJoin, func() error { return cgo.CMJoin(i.id, &addr, i.token) })
		if err != nil {
			return nil, err
		}
		gid, lid := verbs.GID(ev.AH.GRH.DGID), ev.AH.DLID
		if err := c.prepared.setup.QP.AttachMulticast(gid, lid); err != nil {
			i.do("leave by", func() error { return cgo.CMLeave(i.id, &addr) })
			return nil, err
		}
		c.group, c.attached, c.lid = &addr, gid, lid
		return ev, nil
	})
}

// peer brings the queue pair up and makes the address handle of what find
// returns.
func (i *cmID) peer(cfg *ConnConfig, find func(*Peer) (*cgo.CMEvent, error)) (*Peer, error) {
	p, err := i.prepare(cfg, verbs.UD, MaxRequestDataUD)
	if err != nil {
		return nil, err
	}
	c := &Peer{id: i, prepared: p}
	if err := c.find(find); err != nil {
		return nil, errors.Join(err, c.leave(), p.close())
	}
	return c, nil
}

func (c *Peer) find(find func(*Peer) (*cgo.CMEvent, error)) error {
	qp := c.prepared.setup.QP
	if qp.State() == verbs.StateInit {
		if err := qp.Activate(); err != nil {
			return err
		}
	}
	ev, err := find(c)
	if err != nil {
		return err
	}
	c.private = privateData(ev)
	if c.ah, err = qp.PD().CreateAH(driver.AHAttr(&ev.AH)); err != nil {
		return err
	}
	c.dest = verbs.Destination{AH: c.ah, QPN: ev.QPN, QKey: ev.QKey}
	return nil
}

// Destination is where to send. It is valid until Close.
func (c *Peer) Destination() verbs.Destination { return c.dest }

// PrivateData is what the service sent with its reply, padded with zeros.
func (c *Peer) PrivateData() []byte { return c.private }

// Close leaves the group, if it is one, and forgets the peer: sends to it must
// have completed. Closing twice is not an error.
func (c *Peer) Close() error {
	c.closing.Lock() // a second Close waits for the first
	defer c.closing.Unlock()
	err := c.leave()
	if c.ah != nil {
		err = errors.Join(err, c.ah.Close())
	}
	return errors.Join(err, c.id.close(), c.prepared.close())
}

func (c *Peer) leave() error {
	if c.group == nil {
		return nil
	}
	group, qp := c.group, c.prepared.setup.QP
	c.group = nil
	err := qp.DetachMulticast(c.attached, c.lid)
	if errors.Is(err, verbs.ErrClosed) {
		err = nil // its end detached it
	}
	return errors.Join(err, c.id.do("leave by", func() error { return cgo.CMLeave(c.id.id, group) }))
}

// AcceptUD sends the peer the queue pair number of a datagram service. The queue pair
// comes from cfg.Setup. The request is then finished. The peer's address is in its
// datagrams.
func (r *Request) AcceptUD(cfg ConnConfig) error {
	if err := r.finish("accept"); err != nil {
		return err
	}
	err := r.tell(&cfg)
	if err != nil {
		r.id.do("reject", func() error { return cgo.CMReject(r.id.id, nil) })
	}
	return errors.Join(err, r.id.close())
}

func (r *Request) tell(cfg *ConnConfig) error {
	switch {
	case r.typ != verbs.UD:
		return operr.New("accept", r.id.life.Label, verbs.ErrAttributes, "a connection: use Accept")
	case cfg.Setup == nil:
		return operr.New("accept", r.id.life.Label, verbs.ErrAttributes, "Setup is missing")
	}
	p, err := r.id.prepare(cfg, verbs.UD, MaxAcceptDataUD)
	if err != nil {
		return err
	}
	if qp := p.setup.QP; qp.State() == verbs.StateInit {
		if err := qp.Activate(); err != nil {
			return err
		}
	}
	return r.id.do("accept", func() error { return cgo.CMAccept(r.id.id, &p.param) })
}
