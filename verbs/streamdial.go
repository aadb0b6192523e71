package verbs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs/internal/operr"
)

// StreamConfig says how streams are made. The zero value is fine.
type StreamConfig struct {
	// Buffer is the size in bytes of the ring that the peer writes to, and of
	// the buffer for sending; 4 KiB to 64 MiB, 0 means 1 MiB.
	Buffer int
	// Messages is how many messages may be under way in each direction; 8 to
	// 256, 0 means 128. It bounds small writes as Buffer bounds large ones.
	Messages int
	// Dial is how to reach the peer; its ConnConfig is the stream's own.
	Dial DialConfig
	// Listen is how to listen. Its Backlog is how many requests wait for one of
	// Pending places; further ones are rejected.
	Listen ListenConfig
	// Pending is how many streams a listener makes ahead of Accept, each with
	// its buffers, whether their peers have finished connecting or not: what
	// strangers can take is Pending times twice Buffer of pinned memory. 0 means
	// 16.
	Pending int
	// HandshakeTimeout is how long a peer may take to finish connecting once it
	// has got one of those places; 0 means 10 s.
	HandshakeTimeout time.Duration
}

func (c *StreamConfig) resolve() error {
	if c.Buffer == 0 {
		c.Buffer = 1 << 20
	}
	if c.Messages == 0 {
		c.Messages = 128
	}
	if c.Buffer < minRing || c.Buffer > maxRing || c.Messages < minMessages || c.Messages > maxMessages {
		return operr.New("make", "stream", ErrAttributes, "buffer of ", c.Buffer, " bytes, ", c.Messages, " messages")
	}
	if c.Pending == 0 {
		c.Pending = 16
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.Pending < 0 || c.HandshakeTimeout < 0 {
		return operr.New("make", "stream", ErrAttributes, c.Pending, " pending, handshake of ", c.HandshakeTimeout)
	}
	return nil
}

// streamParts is what a stream is made of.
type streamParts struct {
	pd     *PD
	recvCQ *CQ // what the peer sends
	sendCQ *CQ
	qp     *QP
	ring   *MR // that the peer writes to
	buffer *MR // that is written from
}

// make is the Setup of a stream. It is called again for each address of the
// peer that is tried.
func (p *streamParts) make(c *CMSetup, cfg *StreamConfig) error {
	err := p.close()
	if err == nil {
		err = p.create(c, cfg)
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	hello := streamHello{ring: p.ring.Region(), messages: uint16(cfg.Messages)}
	c.QP, c.PrivateData = p.qp, hello.encode()
	return nil
}

func (p *streamParts) create(c *CMSetup, cfg *StreamConfig) (err error) {
	recvs := cfg.Messages + spareReceives
	sends := maxMessages + 2*spareReceives
	if p.pd, err = c.Device.AllocPD(); err != nil {
		return err
	}
	vector := c.Device.NextVector()
	if p.recvCQ, err = c.Device.CreateCQ(CQConfig{Depth: recvs, Vector: vector}); err != nil {
		return err
	}
	if p.sendCQ, err = c.Device.CreateCQ(CQConfig{Depth: sends, Vector: vector}); err != nil {
		return err
	}
	if p.ring, err = p.pd.AllocMR(cfg.Buffer, MRConfig{Access: RemoteWrite}); err != nil {
		return err
	}
	p.qp, err = p.pd.CreateQP(QPConfig{SendCQ: p.sendCQ, RecvCQ: p.recvCQ, GID: c.GID,
		MaxSendWR: sends, MaxRecvWR: recvs, Access: LocalWrite | RemoteWrite})
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

func (p *streamParts) close() error {
	var err error
	if p.qp != nil {
		err = errors.Join(err, p.qp.Close())
	}
	for _, m := range []*MR{p.ring, p.buffer} {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	for _, c := range []*CQ{p.recvCQ, p.sendCQ} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if p.pd != nil {
		err = errors.Join(err, p.pd.Close())
	}
	if err == nil {
		*p = streamParts{}
	}
	return err
}

// StreamDial connects to a [StreamListen] at "host:port". Errors are those of
// [CM.Dial], and [ErrMessage] if something else listens there.
func StreamDial(ctx context.Context, m *CM, address string, cfg StreamConfig) (*Stream, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	s := &Stream{}
	dial := cfg.Dial
	dial.ConnConfig = ConnConfig{MaxReads: -1, Setup: func(c *CMSetup) error { return s.parts.make(c, &cfg) }}
	conn, err := m.Dial(ctx, address, dial)
	if err != nil {
		return nil, errors.Join(err, s.parts.close())
	}
	hello, err := decodeHello(conn.PrivateData())
	if err == nil {
		err = s.start(conn, hello, &cfg)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(), s.parts.close())
	}
	return s, nil
}

// start makes a stream of a connection.
func (s *Stream) start(conn *CMConn, hello streamHello, cfg *StreamConfig) (err error) {
	s.conn, s.peer = conn, hello.ring
	s.local, s.remote = streamAddr{conn.LocalAddr()}, streamAddr{conn.RemoteAddr()}
	s.waits, s.stop = context.WithCancel(context.Background())
	s.reader.wake, s.writer.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	s.flow = streamFlow{ring: uint64(cfg.Buffer), messages: uint64(cfg.Messages),
		peerRing: hello.ring.Length, peerMessages: uint64(hello.messages), buffer: uint64(cfg.Buffer)}
	// Not before there is a peer.
	if s.parts.buffer, err = s.parts.pd.AllocMR(cfg.Buffer, MRConfig{}); err != nil {
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

// streamAddr is an address of network "rdma".
type streamAddr struct{ netip.AddrPort }

func (streamAddr) Network() string { return "rdma" }

// StreamListener is a [net.Listener] for streams.
type StreamListener struct {
	listener *CMListener
	log      *slog.Logger
	cfg      StreamConfig
	streams  chan *Stream
	over     chan struct{} // closed when no more will come
	cause    error         // why over is closed
	places   chan struct{} // has a token for each stream that nobody has accepted
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
	shut     sync.Once
	shutErr  error
}

// StreamListen listens at "host:port" for [StreamDial].
func StreamListen(m *CM, address string, cfg StreamConfig) (*StreamListener, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	l, err := m.Listen(address, cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &StreamListener{listener: l, log: m.Logger(), cfg: cfg, streams: make(chan *Stream), over: make(chan struct{}), places: make(chan struct{}, cfg.Pending)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(s.serve)
	return s, nil
}

// serve answers as many requests at a time as there are places, each for itself:
// a peer that does not go on holds the others up only while it has a place. The
// rest wait in the listener's backlog, where they cost nothing.
func (l *StreamListener) serve() {
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

func (l *StreamListener) accept(r *CMRequest) (*Stream, error) {
	hello, err := decodeHello(r.PrivateData())
	if err != nil {
		return nil, errors.Join(err, r.Reject([]byte("not a stream")))
	}
	s := &Stream{}
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	defer cancel()
	conn, err := r.Accept(ctx, ConnConfig{MaxReads: -1, Setup: func(c *CMSetup) error { return s.parts.make(c, &l.cfg) }})
	if err != nil {
		return nil, errors.Join(err, s.parts.close())
	}
	if err := s.start(conn, hello, &l.cfg); err != nil {
		return nil, errors.Join(err, conn.Close(), s.parts.close())
	}
	return s, nil
}

// Accept waits for the next stream, a [*Stream].
func (l *StreamListener) Accept() (net.Conn, error) {
	select {
	case s := <-l.streams:
		return s, nil
	case <-l.ctx.Done():
	case <-l.over:
		if l.ctx.Err() == nil {
			return nil, l.fault(l.cause)
		}
	}
	return nil, l.fault(operr.Class(net.ErrClosed, ErrClosed))
}

func (l *StreamListener) fault(err error) error {
	return &net.OpError{Op: "accept", Net: "rdma", Addr: l.Addr(), Err: err}
}

// Addr is the address that is listened at.
func (l *StreamListener) Addr() net.Addr { return streamAddr{l.listener.Addr()} }

// Close ends listening. Streams that Accept has answered go on. Closing twice
// is not an error.
func (l *StreamListener) Close() error {
	l.shut.Do(func() {
		l.cancel()
		l.shutErr = l.listener.Close()
		l.all.Wait()
	})
	return l.shutErr
}
