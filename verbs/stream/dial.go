package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/operr"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream/internal/flow"
	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

// Config says how streams are made. The zero value is fine.
type Config struct {
	// Buffer is the size in bytes of the ring that the peer writes to, and of
	// the buffer for sending; 4 KiB to 64 MiB, 0 means 1 MiB.
	Buffer int
	// Messages is how many messages may be under way in each direction; 8 to
	// 256, 0 means 128. It bounds small writes as Buffer bounds large ones.
	Messages int
	// Dial is how to reach the peer; its ConnConfig is the stream's own.
	Dial rdmacm.DialConfig
	// Listen is how to listen. Its Backlog is how many requests wait for one of
	// Pending places; further ones are rejected.
	Listen rdmacm.ListenConfig
	// Pending is how many streams a listener makes ahead of Accept, each with
	// its buffers, whether their peers have finished connecting or not: what
	// strangers can take is Pending times twice Buffer of pinned memory. 0 means
	// 16.
	Pending int
	// HandshakeTimeout is how long a peer may take to finish connecting once it
	// has got one of those places; 0 means 10 s.
	HandshakeTimeout time.Duration
}

func (c *Config) resolve() error {
	if c.Buffer == 0 {
		c.Buffer = 1 << 20
	}
	if c.Messages == 0 {
		c.Messages = 128
	}
	if c.Buffer < wire.MinRing || c.Buffer > wire.MaxRing || c.Messages < wire.MinMessages || c.Messages > wire.MaxMessages {
		return operr.New("make", "stream", verbs.ErrAttributes, "buffer of ", c.Buffer, " bytes, ", c.Messages, " messages")
	}
	if c.Pending == 0 {
		c.Pending = 16
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.Pending < 0 || c.HandshakeTimeout < 0 {
		return operr.New("make", "stream", verbs.ErrAttributes, c.Pending, " pending, handshake of ", c.HandshakeTimeout)
	}
	return nil
}

// parts is what a stream is made of.
type parts struct {
	pd     *verbs.PD
	recvCQ *verbs.CQ // what the peer sends
	sendCQ *verbs.CQ
	qp     *verbs.QP
	ring   *verbs.MR // that the peer writes to
	buffer *verbs.MR // that is written from
}

// make is the Setup of a stream. It is called again for each address of the
// peer that is tried.
func (p *parts) make(c *rdmacm.Setup, cfg *Config) error {
	err := p.close()
	if err == nil {
		err = p.create(c, cfg)
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	r := p.ring.Region()
	hello := wire.Hello{Addr: r.Addr, Size: uint32(r.Length), RKey: r.RKey, Messages: uint16(cfg.Messages)}
	c.QP, c.PrivateData = p.qp, hello.Encode()
	return nil
}

func (p *parts) create(c *rdmacm.Setup, cfg *Config) (err error) {
	recvs := cfg.Messages + flow.SpareReceives
	sends := wire.MaxMessages + 2*flow.SpareReceives
	if p.pd, err = c.Device.AllocPD(); err != nil {
		return err
	}
	vector := c.Device.NextVector()
	if p.recvCQ, err = c.Device.CreateCQ(verbs.CQConfig{Depth: recvs, Vector: vector}); err != nil {
		return err
	}
	if p.sendCQ, err = c.Device.CreateCQ(verbs.CQConfig{Depth: sends, Vector: vector}); err != nil {
		return err
	}
	if p.ring, err = p.pd.AllocMR(cfg.Buffer, verbs.MRConfig{Access: verbs.RemoteWrite}); err != nil {
		return err
	}
	p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.sendCQ, RecvCQ: p.recvCQ, GID: c.GID,
		MaxSendWR: sends, MaxRecvWR: recvs, Access: verbs.LocalWrite | verbs.RemoteWrite})
	if err != nil {
		return err
	}
	b, err := p.qp.NewRecvBatch(recvs)
	if err != nil {
		return err
	}
	for range recvs {
		b.Recv(0)
	}
	_, err = b.Post()
	return err
}

func (p *parts) close() error {
	var err error
	if p.qp != nil {
		err = errors.Join(err, p.qp.Close())
	}
	for _, m := range []*verbs.MR{p.ring, p.buffer} {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	for _, c := range []*verbs.CQ{p.recvCQ, p.sendCQ} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if p.pd != nil {
		err = errors.Join(err, p.pd.Close())
	}
	if err == nil {
		*p = parts{}
	}
	return err
}

// Dial connects to a [Listen] at "host:port". Errors are those of
// [rdmacm.CM.Dial], and [verbs.ErrMessage] if something else listens there.
func Dial(ctx context.Context, m *rdmacm.CM, address string, cfg Config) (*Conn, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	s := &Conn{}
	dial := cfg.Dial
	dial.ConnConfig = rdmacm.ConnConfig{MaxReads: -1, Setup: func(c *rdmacm.Setup) error { return s.parts.make(c, &cfg) }}
	conn, err := m.Dial(ctx, address, dial)
	if err != nil {
		return nil, errors.Join(err, s.parts.close())
	}
	hello, err := greeting(conn.PrivateData())
	if err == nil {
		err = s.start(conn, hello, &cfg)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(), s.parts.close())
	}
	return s, nil
}

// greeting is what the peer said of its ring.
func greeting(private []byte) (wire.Hello, error) {
	hello, err := wire.Decode(private)
	if err != nil {
		err = operr.New("decode", "stream greeting", verbs.ErrMessage, err)
	}
	return hello, err
}

// start makes a stream of a connection.
func (s *Conn) start(conn *rdmacm.Conn, hello wire.Hello, cfg *Config) (err error) {
	s.conn, s.peer = conn, verbs.Region{Addr: hello.Addr, Length: uint64(hello.Size), RKey: hello.RKey}
	s.local, s.remote = addr{conn.LocalAddr()}, addr{conn.RemoteAddr()}
	s.waits, s.stop = context.WithCancel(context.Background())
	s.reader.wake, s.writer.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	s.flow = flow.New(flow.Config{Ring: uint64(cfg.Buffer), Messages: uint64(cfg.Messages),
		PeerRing: uint64(hello.Size), PeerMessages: uint64(hello.Messages), Buffer: uint64(cfg.Buffer)})
	// Not before there is a peer.
	if s.parts.buffer, err = s.parts.pd.AllocMR(cfg.Buffer, verbs.MRConfig{}); err != nil {
		return err
	}
	if s.credit, err = s.parts.qp.NewBatch(1); err != nil {
		return err
	}
	if s.data, err = s.parts.qp.NewBatch(1); err != nil {
		return err
	}
	s.recvs, err = s.parts.qp.NewRecvBatch(len(s.wcs))
	return err
}

// addr is an address of network "rdma".
type addr struct{ netip.AddrPort }

func (addr) Network() string { return "rdma" }

// Listener is a [net.Listener] for streams.
type Listener struct {
	listener *rdmacm.Listener
	log      *slog.Logger
	cfg      Config
	streams  chan *Conn
	over     chan struct{} // closed when no more will come
	cause    error         // why over is closed
	places   chan struct{} // has a token for each stream that nobody has accepted
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
	shut     sync.Once
	shutErr  error
}

// Listen listens at "host:port" for [Dial].
func Listen(m *rdmacm.CM, address string, cfg Config) (*Listener, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	l, err := m.Listen(address, cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &Listener{listener: l, log: m.Logger(), cfg: cfg, streams: make(chan *Conn), over: make(chan struct{}), places: make(chan struct{}, cfg.Pending)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(s.serve)
	return s, nil
}

// serve answers as many requests at a time as there are places, each for itself:
// a peer that does not go on holds the others up only while it has a place. The
// rest wait in the listener's backlog, where they cost nothing.
func (l *Listener) serve() {
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		r, err := l.listener.Accept(l.ctx)
		if err != nil {
			l.cause = err
			close(l.over)
			return
		}
		l.all.Go(func() {
			defer func() { <-l.places }()
			s, err := l.accept(r)
			if err != nil {
				l.log.Warn("accept stream", "peer", r.RemoteAddr(), "err", err)
				return
			}
			select {
			case l.streams <- s:
			case <-l.ctx.Done():
				s.Close()
			}
		})
	}
}

func (l *Listener) accept(r *rdmacm.Request) (*Conn, error) {
	hello, err := greeting(r.PrivateData())
	if err != nil {
		return nil, errors.Join(err, r.Reject([]byte("not a stream")))
	}
	s := &Conn{}
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	defer cancel()
	conn, err := r.Accept(ctx, rdmacm.ConnConfig{MaxReads: -1, Setup: func(c *rdmacm.Setup) error { return s.parts.make(c, &l.cfg) }})
	if err != nil {
		return nil, errors.Join(err, s.parts.close())
	}
	if err := s.start(conn, hello, &l.cfg); err != nil {
		return nil, errors.Join(err, conn.Close(), s.parts.close())
	}
	return s, nil
}

// Accept waits for the next stream, a [*Conn].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case s := <-l.streams:
		return s, nil
	case <-l.ctx.Done():
	case <-l.over:
		if l.ctx.Err() == nil {
			return nil, l.fault(l.cause)
		}
	}
	return nil, l.fault(operr.Class(net.ErrClosed, verbs.ErrClosed))
}

func (l *Listener) fault(err error) error {
	return &net.OpError{Op: "accept", Net: "rdma", Addr: l.Addr(), Err: err}
}

// Addr is the address that is listened at.
func (l *Listener) Addr() net.Addr { return addr{l.listener.Addr()} }

// Close ends listening. Streams that Accept has answered go on. Closing twice
// is not an error.
func (l *Listener) Close() error {
	l.shut.Do(func() {
		l.cancel()
		l.shutErr = l.listener.Close()
		l.all.Wait()
	})
	return l.shutErr
}
