package verbs

import (
	"cmp"
	"context"
	"io"
	"net"
	"time"
)

// How the two ends of a link come together: what each is made of, the exchange, the
// transitions, and the barrier behind which both can be used.

// connect makes the link. first is the peer's endpoint if it has come already, or nil.
func (l *Link) connect(ctx context.Context, conn net.Conn, cfg *LinkConfig, first *Endpoint) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ExchangeTimeout)
		defer cancel()
	}
	var offer Offer
	var err error
	if first != nil { // before anything is made
		err = fits(conn, cmp.Or(cfg.QP.Type, RC), *first)
	}
	if err == nil {
		offer, err = l.make(ctx, conn, cfg)
	}
	if err == nil {
		err = l.exchange(ctx, conn, offer, cfg, first)
	} else {
		refuse(conn)
	}
	if err != nil {
		return err
	}
	err = l.join(cfg.Connect)
	probe := 0
	if err == nil && sameRoute(conn, l.qp.gid) {
		probe = cfg.Connect.MTU.Bytes()
	}
	if ready := l.barrier(ctx, conn, err == nil, probe); err == nil {
		err = ready
	}
	return err
}

// make makes the objects of this side of the link.
func (l *Link) make(ctx context.Context, conn net.Conn, cfg *LinkConfig) (Offer, error) {
	gid := cfg.QP.GID
	if l.pd == nil {
		dev, at, err := OpenFor(ctx, addrOf(conn.LocalAddr()), DeviceConfig{})
		if err != nil {
			return Offer{}, err
		}
		l.own(dev)
		if l.pd, err = dev.AllocPD(); err != nil {
			return Offer{}, err
		}
		l.own(l.pd)
		gid = cmp.Or(gid, at.GID)
	}
	if gid == (GIDEntry{}) {
		var err error
		if gid, err = l.pd.dev.GIDFor(conn.LocalAddr()); err != nil {
			return Offer{}, err
		}
	}
	return l.build(cfg, gid)
}

// prepareLink is [driver.PrepareLink].
func prepareLink(dev *Device, gid GIDEntry, cfg LinkConfig) (_ *Link, offer Offer, err error) {
	l := &Link{pd: cfg.PD}
	made := false
	defer closeUnless(&made, l, &err)
	cfg.QP.KeepAlive = cmp.Or(cfg.QP.KeepAlive, DefaultKeepAlive)
	if l.pd == nil {
		if l.pd, err = dev.AllocPD(); err != nil {
			return nil, Offer{}, err
		}
		l.own(l.pd)
	}
	if offer, err = l.build(&cfg, gid); err != nil {
		return nil, Offer{}, err
	}
	made = true
	return l, offer, nil
}

// connected is [driver.Connected].
func (l *Link) connected(connection io.Closer, peer Endpoint) {
	l.peer.Store(&peer)
	if connection != nil {
		l.own(connection)
	}
}

// build makes the objects on the protection domain, and calls the program's Setup.
func (l *Link) build(cfg *LinkConfig, gid GIDEntry) (Offer, error) {
	dev, qc := l.pd.dev, cfg.QP
	qc.GID = gid
	var err error
	if qc.SendCQ == nil {
		if l.cq, err = dev.createCQFor(qc); err != nil {
			return Offer{}, err
		}
		l.own(l.cq)
		qc.SendCQ = l.cq
	}
	if cfg.ReceiveApart && qc.RecvCQ == nil {
		if qc.RecvCQ, err = dev.CreateCQ(CQConfig{Depth: qc.MaxRecvWR, Vector: dev.NextVector(), PollFor: cfg.PollFor}); err != nil {
			return Offer{}, err
		}
		l.own(qc.RecvCQ)
	}
	if l.qp, err = l.pd.CreateQP(qc); err != nil {
		return Offer{}, err
	}
	l.own(l.qp)
	if cfg.Receive != nil {
		if l.receiver, err = NewReceiver(l.qp, *cfg.Receive); err != nil {
			return Offer{}, err
		}
		l.own(l.receiver)
	}
	if cfg.Setup == nil {
		return Offer{}, nil
	}
	return cfg.Setup(l)
}

// exchange swaps endpoints with the peer; first is the peer's endpoint if it
// has come already. The MTU becomes the smallest that either side, its netdev or its route
// carries.
func (l *Link) exchange(ctx context.Context, conn net.Conn, offer Offer, cfg *LinkConfig, first *Endpoint) error {
	e, err := l.qp.Endpoint()
	if err != nil {
		refuse(conn)
		return err
	}
	e.Regions, e.Data = offer.Regions, offer.Data
	e.MTU = min(e.MTU, routeMTU(conn, l.qp.gid))
	if cfg.Connect.MTU.Bytes() != 0 {
		e.MTU = min(e.MTU, cfg.Connect.MTU)
	}
	e.MaxReads = sayReads(cfg.Connect.reads(l.pd.dev))
	if _, err := e.AppendBinary(nil); err != nil {
		refuse(conn)
		return err
	}
	var peer Endpoint
	if first == nil {
		peer, err = Exchange(ctx, conn, e)
	} else {
		peer, err = *first, reply(ctx, conn, e)
	}
	if err != nil {
		sayFailed(conn) // the peer may have had a good message of ours
		return err
	}
	l.peer.Store(&peer)
	if cfg.Connect.MTU == 0 || cfg.Connect.MTU.Bytes() != 0 { // Connect refuses what is no MTU
		cfg.Connect.MTU = min(e.MTU, peer.MTU)
	}
	return fits(conn, l.qp.typ, peer)
}

// fits refuses a peer with a queue pair of another transport.
func fits(conn net.Conn, own QPType, peer Endpoint) error {
	if peer.Type != own {
		return opError("link with", conn.RemoteAddr().String(), ErrAttributes, "this side is ", own, ", the peer ", peer.Type)
	}
	return nil
}

// refuse tells a peer that waits for an endpoint that there will be none.
func refuse(conn net.Conn) { say(conn, endpointRefused) }

// sayFailed tells a peer that waits at the barrier.
func sayFailed(conn net.Conn) { say(conn, string(linkFailed)) }

func say(conn net.Conn, what string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	conn.Write([]byte(what))
	conn.SetWriteDeadline(time.Time{})
}

// join connects the queue pair, or activates it and finds the way to the peer.
func (l *Link) join(cfg ConnectConfig) error {
	peer := l.Peer()
	if l.qp.typ != UD {
		return l.qp.Connect(peer, cfg)
	}
	if err := l.qp.Activate(); err != nil {
		return err
	}
	path, err := l.qp.PathTo(peer, cfg)
	if err != nil {
		return err
	}
	ah, err := l.pd.CreateAH(path)
	if err != nil {
		return err
	}
	l.own(ah)
	l.to = Destination{AH: ah, QPN: peer.QPN, QKey: peer.QKey}
	return nil
}
