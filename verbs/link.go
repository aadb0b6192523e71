package verbs

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// LinkConfig configures a link. With the zero value the link makes everything itself, on
// the device of the connection's own IP address.
type LinkConfig struct {
	// PD is the protection domain. If it is nil, the link makes one, on a device that it
	// opens.
	PD *PD
	// QP describes the queue pair: RC, UC or UD. SendCQ may be nil, for a queue of
	// the link's own. GID may be zero, for that of the connection's local address:
	// see [Device.GIDFor]. KeepAlive is how soon the loss of the peer's host is noticed; 0
	// means [DefaultKeepAlive], negative never. [NewLink] has none unless it is set.
	QP QPConfig
	// Connect says how the connection behaves. Its MTU is an upper bound: a link takes
	// the smallest MTU that the ports, netdevs and routes of both sides carry. If a link on
	// the way carries less than that, and both sides have the GID of the TCP connection's
	// address, the error is [ErrPathMTU].
	Connect ConnectConfig
	// Dialer makes the TCP connection of [DialLink]; nil means a plain one.
	Dialer *net.Dialer
	// Greet is called by [DialLink] with the TCP connection before anything else is sent
	// on it, and must leave it where the exchange begins. It is the place for the client
	// to identify itself. An error ends the attempt. A server does its part when it
	// accepts, in the net.Listener that it gives [ServeLinks]. nil means that nothing is
	// sent.
	Greet func(context.Context, net.Conn) error
	// ReceiveApart makes receives complete in a queue of their own, which the link makes
	// if QP names none. Otherwise each SEND that completes also wakes the goroutine that
	// waits for messages.
	ReceiveApart bool
	// PollFor is [CQConfig.PollFor] of that queue.
	PollFor time.Duration
	// Receive asks for a [Receiver] that is ready before the peer can send
	// ([Link.Receiver]); nil means none.
	Receive *ReceiverConfig
	// Setup is called before the peer can reach the queue pair. It registers memory
	// ([Link.AllocMR]), posts first receives, and returns what the peer is told.
	// [OfferMemory] makes a Setup that offers a piece of memory.
	Setup func(*Link) (Offer, error)
}

// Offer is what one end of a link tells the other.
type Offer struct {
	Regions []Region // memory that the peer may use; at most [MaxRegions]
	Data    []byte   // for the programs; at most [MaxEndpointData] bytes
}

// OfferMemory returns a Setup that registers a slice of the program's and offers it to the peer,
// as the first of the peer's [Link.Regions]. access is what the peer may do until the link closes:
// [RemoteRead], [RemoteWrite], [RemoteAtomic], or several of them. Many links may offer one slice,
// each with a key and rights of its own. buf must not be empty; what is registered is the array
// behind it, so do not append to it.
//
// READs and WRITEs need no alignment. An atomic needs a word at an address that is a multiple of
// 8, as a []byte of 16 bytes or more from make has. A word that peers change by atomics, the
// program has to change by atomics through the device too, unless those are atomic with the
// CPU's ([AtomicGlob]).
//
// With [RemoteRead] alone the memory is registered as [MRConfig.ReadOnly].
func OfferMemory(buf []byte, access Access) func(*Link) (Offer, error) {
	return func(l *Link) (Offer, error) {
		readOnly := access&(LocalWrite|RemoteWrite|RemoteAtomic) == 0
		mr, err := l.RegisterMR(buf, MRConfig{Access: access, ReadOnly: readOnly})
		if err != nil {
			return Offer{}, err
		}
		return Offer{Regions: []Region{mr.Region()}}, nil
	}
}

// Link is a queue pair connected to a peer's, over a TCP connection or by the connection
// manager, together with what was made for it.
type Link struct {
	pd   *PD
	cq   *CQ // its own, or nil
	qp   *QP
	peer atomic.Pointer[Endpoint] // once it is known
	to   Destination

	closing sync.Mutex // a second Close waits for the first

	mu        sync.Mutex
	closed    bool        // nothing more is made
	made      []io.Closer // in the order of making
	requester *Requester
	receiver  *Receiver
}

// NewLink makes a queue pair and connects it with the peer's. The peer calls NewLink at
// about the same time on its end of conn. When NewLink returns, the peer's queue pair
// is ready to receive too. An error on either side ends both calls. Without a deadline in
// ctx a silent peer is given up after [ExchangeTimeout].
//
// conn stays open and can be used afterwards. Its traffic is not encrypted: on a
// network that is not trusted, use TLS.
func NewLink(ctx context.Context, conn net.Conn, cfg LinkConfig) (_ *Link, err error) {
	if ctx.Err() != nil {
		return nil, opError("link with", conn.RemoteAddr().String(), ctx.Err())
	}
	l := &Link{pd: cfg.PD}
	made := false
	defer closeUnless(&made, l, &err)
	if err = l.connect(ctx, conn, &cfg, nil); err != nil {
		return nil, err
	}
	made = true
	return l, nil
}

// closeUnless is deferred where something is made that c is a part of: if that fails, or
// a function of the program panics, c closes.
func closeUnless(made *bool, c io.Closer, err *error) {
	if !*made {
		*err = errors.Join(*err, c.Close())
	}
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

// Destination is the way to the peer for datagrams, on a UD link.
func (l *Link) Destination() Destination { return l.to }

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

// AddCloser makes something of the program's close with the link, before everything that was
// made for the link earlier. So what [LinkConfig.Setup] makes is freed whatever becomes
// of the link. After [Link.Close], AddCloser closes c at once and returns [ErrClosed].
func (l *Link) AddCloser(c io.Closer) error {
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

// Close ends the requests of the link's requester, then the connection, and closes what
// was made for the link, the last first. If something of the program's depends on that,
// such as other memory in the protection domain, the rest stays open and the error is
// [ErrInUse]: close that memory and call Close again. Closing twice is not an error.
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
		c := l.made[last]
		l.made = l.made[:last] // before Close, which may be the program's and panic
		if err := c.Close(); err != nil {
			l.made = append(l.made, c)
			return err
		}
	}
	return nil
}
