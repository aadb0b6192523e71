package verbs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// LinkConfig says what a link is made of. With the zero value everything is made
// for it: the device is that of the connection's own IP address.
type LinkConfig struct {
	// PD is the protection domain; nil has one made, on a device that is opened
	// for the link.
	PD *PD
	// QP describes the queue pair: RC, UC or UD. SendCQ may be nil, for a queue of
	// the link's own. GID may be zero, for the one of the connection's own
	// address, or if that is none of the device's, for what [Device.FindGID]
	// finds.
	QP QPConfig
	// Connect says how the connection behaves.
	Connect ConnectConfig
	// Dialer makes the TCP connection of [DialLink]; nil means a plain one.
	Dialer *net.Dialer
	// Receive has a [Receiver] made that is ready before the peer can send
	// ([Link.Receiver]); nil means none.
	Receive *ReceiverConfig
	// Setup is called before the peer can reach the queue pair. It registers
	// memory ([Link.AllocMR]), posts first receives, and answers what the peer is
	// told. [OfferMemory] makes one that offers a piece of memory.
	Setup func(*Link) (Offer, error)
}

// Offer is what one end of a link tells the other.
type Offer struct {
	Regions []Region // memory that the peer may use; at most [MaxRegions]
	Data    []byte   // for the programs; at most [MaxEndpointData] bytes
}

// OfferMemory is a Setup that offers a slice of the program's to the peer, who may
// use it as access says until the link closes. Many links may offer one slice.
func OfferMemory(buf []byte, access Access) func(*Link) (Offer, error) {
	return func(l *Link) (Offer, error) {
		mr, err := l.RegisterMR(buf, MRConfig{Access: access})
		if err != nil {
			return Offer{}, err
		}
		return Offer{Regions: []Region{mr.Region()}}, nil
	}
}

// Link is a queue pair that is connected to a peer's, by a TCP connection or by the
// connection manager, and what was made for it.
type Link struct {
	pd   *PD
	cq   *CQ // its own, or nil
	qp   *QP
	peer atomic.Pointer[Endpoint] // once it is known
	to   Dest

	closing sync.Mutex // whoever closes second waits

	mu        sync.Mutex
	closed    bool        // nothing more is made
	made      []io.Closer // in the order of making
	requester *Requester
	receiver  *Receiver
}

// NewLink makes a queue pair and connects it with the peer's, whose program calls
// NewLink at about the same time on its end of conn. When it returns, the peer's
// queue pair is ready too: what is sent now finds it. Errors of either side end
// both calls. Without a deadline in ctx a peer that says nothing is given up
// after [ExchangeTimeout].
//
// conn stays open and can be used afterwards. Its traffic is not encrypted: on a
// network that is not trusted, use TLS.
func NewLink(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	l := &Link{pd: cfg.PD}
	err := l.connect(ctx, conn, &cfg)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// PD is the protection domain.
func (l *Link) PD() *PD { return l.pd }

// QP is the queue pair.
func (l *Link) QP() *QP { return l.qp }

// CQ is the completion queue that was made for the link, or nil.
func (l *Link) CQ() *CQ { return l.cq }

// Regions is the memory that the peer offers.
func (l *Link) Regions() []Region { return l.Peer().Regions }

// Data is what the peer's program said in its [Offer].
func (l *Link) Data() []byte { return l.Peer().Data }

// Peer is the peer's queue pair.
func (l *Link) Peer() Endpoint {
	if p := l.peer.Load(); p != nil {
		return *p
	}
	return Endpoint{}
}

// Dest is the way to the peer for datagrams, on a UD link.
func (l *Link) Dest() Dest { return l.to }

// AllocMR registers memory, as [PD.AllocMR] does, that closes with the link.
func (l *Link) AllocMR(size int, cfg MRConfig) (*MR, error) {
	return l.ownMR(l.pd.AllocMR(size, cfg))
}

// RegisterMR registers a slice of the caller, as [PD.RegisterMR] does, until the
// link closes.
func (l *Link) RegisterMR(buf []byte, cfg MRConfig) (*MR, error) {
	return l.ownMR(l.pd.RegisterMR(buf, cfg))
}

func (l *Link) ownMR(mr *MR, err error) (*MR, error) {
	if err != nil {
		return nil, err
	}
	if err := l.own(mr); err != nil {
		return nil, err
	}
	return mr, nil
}

// Requester is the link's, made by the first call; it closes with the link.
func (l *Link) Requester() (*Requester, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, opError("make requester for", "link", ErrClosed)
	}
	if l.requester == nil {
		r, err := NewRequester(l.qp, RequesterConfig{})
		if err != nil {
			return nil, err
		}
		l.requester, l.made = r, append(l.made, r)
	}
	return l.requester, nil
}

// Receiver is the link's, or nil if [LinkConfig.Receive] was; it closes with the
// link.
func (l *Link) Receiver() *Receiver { return l.receiver }

// Own has something of the program's close with the link, before all that was made for
// it earlier: what [LinkConfig.Setup] makes is freed so, whatever becomes of the link.
// What comes after Close is closed at once, and the answer is [ErrClosed].
func (l *Link) Own(c io.Closer) error {
	if c == nil {
		c = nothing{}
	}
	return l.own(c)
}

type nothing struct{}

func (nothing) Close() error { return nil }

func (l *Link) own(c io.Closer) error {
	l.mu.Lock()
	if !l.closed {
		defer l.mu.Unlock()
		l.made = append(l.made, c)
		return nil
	}
	l.mu.Unlock()
	return errors.Join(opError("use", "link", ErrClosed), c.Close())
}

// Close ends the requests of the link's requester, then the connection, and closes
// what was made for the link, the last first. If something of the program's stands on
// that, such as other memory in the protection domain, the rest stays open, with
// [ErrInUse]: close that and call Close again. Closing twice is not an error.
func (l *Link) Close() error {
	l.closing.Lock()
	defer l.closing.Unlock()
	l.mu.Lock()
	l.closed = true // a list that is being made for the requester may ask for memory
	r := l.requester
	l.mu.Unlock()
	if r != nil { // its requests may name memory that was registered later
		if err := r.Close(); err != nil {
			return err
		}
	}
	for len(l.made) > 0 {
		last := len(l.made) - 1
		if err := l.made[last].Close(); err != nil {
			return err
		}
		l.made = l.made[:last]
	}
	return nil
}

func (l *Link) connect(ctx context.Context, conn net.Conn, cfg *LinkConfig) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ExchangeTimeout)
		defer cancel()
	}
	offer, err := l.make(ctx, conn, cfg)
	if err == nil {
		err = l.exchange(ctx, conn, offer)
	} else {
		refuse(conn)
	}
	if err != nil {
		return err
	}
	err = l.join(cfg.Connect)
	if ready := l.barrier(ctx, conn, err == nil); err == nil {
		err = ready
	}
	return err
}

// make makes what the link consists of on this side.
func (l *Link) make(ctx context.Context, conn net.Conn, cfg *LinkConfig) (Offer, error) {
	local := addrOf(conn.LocalAddr())
	if l.pd == nil {
		at, err := LookupAddr(ctx, local)
		if err != nil {
			return Offer{}, err
		}
		dev, err := Open(at.Device, DeviceConfig{})
		if err != nil {
			return Offer{}, err
		}
		l.own(dev)
		if l.pd, err = dev.AllocPD(); err != nil {
			return Offer{}, err
		}
		l.own(l.pd)
	}
	gid := cfg.QP.GID
	if gid == (GIDEntry{}) {
		v2 := GIDRoCEv2
		var err error
		if gid, err = l.pd.dev.FindGID(GIDQuery{Addr: local, Type: &v2}); err != nil {
			if gid, err = l.pd.dev.FindGID(GIDQuery{}); err != nil {
				return Offer{}, err
			}
		}
	}
	return l.build(cfg, gid)
}

// PrepareLink makes what a link consists of for a connection that other code makes,
// as package rdmacm does: of the link's queue pair, to a peer that is told the
// offer. Connected completes the link; if there is no connection, Close it. The
// device is for a link whose config has no PD, and stays open.
func PrepareLink(dev *Device, gid GIDEntry, cfg LinkConfig) (*Link, Offer, error) {
	l := &Link{pd: cfg.PD}
	var offer Offer
	var err error
	if l.pd == nil {
		if l.pd, err = dev.AllocPD(); err == nil {
			l.own(l.pd)
		}
	}
	if err == nil {
		offer, err = l.build(&cfg, gid)
	}
	if err != nil {
		return nil, Offer{}, errors.Join(err, l.Close())
	}
	return l, offer, nil
}

// Connected completes a link of [PrepareLink]: peer is what the peer said, and
// connection, if there is one, closes before the rest.
func (l *Link) Connected(connection io.Closer, peer Endpoint) {
	l.peer.Store(&peer)
	if connection != nil {
		l.own(connection)
	}
}

// build makes what stands on the protection domain, and calls the program's Setup.
func (l *Link) build(cfg *LinkConfig, gid GIDEntry) (Offer, error) {
	dev, qc := l.pd.dev, cfg.QP
	qc.GID = gid
	var err error
	if qc.SendCQ == nil {
		if l.cq, err = dev.CreateCQFor(qc); err != nil {
			return Offer{}, err
		}
		l.own(l.cq)
		qc.SendCQ = l.cq
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

func (l *Link) exchange(ctx context.Context, conn net.Conn, offer Offer) error {
	e, err := l.qp.Endpoint()
	if err != nil {
		refuse(conn)
		return err
	}
	e.Regions, e.Data = offer.Regions, offer.Data
	if _, err := e.AppendBinary(nil); err != nil {
		refuse(conn)
		return err
	}
	peer, err := Exchange(ctx, conn, e)
	if err != nil {
		sayFailed(conn) // the peer may have had a good message of ours
		return err
	}
	l.peer.Store(&peer)
	if peer.Type != l.qp.typ {
		return opError("link with", conn.RemoteAddr().String(), ErrAttributes, "this side is ", l.qp.typ, ", the peer ", peer.Type)
	}
	return nil
}

// refuse tells a peer that waits for an endpoint that there will be none.
func refuse(conn net.Conn) { say(conn, endpointRefused) }

// What a side says at the barrier.
const (
	linkReady  = 'R'
	linkFailed = 'F'
)

// sayFailed tells a peer that waits at the barrier.
func sayFailed(conn net.Conn) { say(conn, string(linkFailed)) }

func say(conn net.Conn, what string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	conn.Write([]byte(what))
	conn.SetWriteDeadline(time.Time{})
}

// join connects the queue pair, or has it work and finds the way to the peer.
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
	l.to = Dest{AH: ah, QPN: peer.QPN, QKey: peer.QKey}
	return nil
}

// barrier waits until the peer is ready, or not, and tells it whether this side
// is: one byte each way.
func (l *Link) barrier(ctx context.Context, conn net.Conn, ok bool) error {
	defer interruptible(ctx, conn)()
	b := [1]byte{linkFailed}
	if ok {
		b[0] = linkReady
	}
	sent := make(chan error, 1) // a pipe has no buffer
	go func() {
		_, err := conn.Write(b[:])
		sent <- err
	}()
	var theirs [1]byte
	_, err := io.ReadFull(conn, theirs[:])
	if err != nil {
		conn.SetDeadline(longAgo)
	}
	err = errors.Join(err, <-sent)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && theirs[0] != linkReady:
		err = class(ErrUnreachable, errors.New("the peer could not connect"))
	}
	return opError("link with", conn.RemoteAddr().String(), err)
}

// interruptible has the end of ctx end reads and writes of conn, until the
// function that it answers is called.
func interruptible(ctx context.Context, conn net.Conn) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(longAgo)
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
		conn.SetDeadline(time.Time{})
	}
}

// addrOf is the IP address of a connection's end, if it has one.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
