package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

// Listener is a [net.Listener] for streams.
type Listener struct {
	cm       *rdmacm.CM
	listener *rdmacm.Listener
	log      *slog.Logger
	cfg      Config
	streams  chan *Conn
	over     chan struct{}  // closed when no more will come
	cause    error          // why over is closed
	requests *pending.Conns // of peers that have not finished connecting
	places   chan struct{}  // has a token for each stream that is not yet accepted
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
	shut     sync.Once
	shutErr  error
}

// requestsOfSource is how many requests of one address wait at a listener.
var requestsOfSource = pending.MaxSource

// Listen listens at "host:port" for [Dial].
func Listen(m *rdmacm.CM, address string, cfg Config) (*Listener, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	l, err := m.Listen(address, cfg.Listen)
	if err != nil {
		return nil, err
	}
	s := &Listener{cm: m, listener: l, log: m.Logger(), cfg: cfg, streams: make(chan *Conn), over: make(chan struct{}), requests: pending.NewInTurn(requestsOfSource, max(cfg.Pending/2, 1)), places: make(chan struct{}, cfg.Pending)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(s.serve)
	return s, nil
}

// serve gives each request a goroutine, which waits until something may be made for it.
func (l *Listener) serve() {
	for {
		r, err := l.listener.Accept(l.ctx)
		if err != nil {
			l.cause = err
			close(l.over)
			return
		}
		l.all.Go(func() {
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
			<-l.places
		})
	}
}

// accept makes a stream, which has a place.
func (l *Listener) accept(r *rdmacm.Request) (*Conn, error) {
	hello, err := greeting(r.PrivateData())
	if err != nil {
		return nil, errors.Join(err, r.Reject([]byte("not a stream")))
	}
	ctx, evict := context.WithCancelCause(l.ctx)
	defer evict(nil)
	turn, leave := l.requests.AdmitInTurn(net.TCPAddrFromAddrPort(r.RemoteAddr()), func() { evict(pending.ErrCrowded) })
	defer leave()
	select {
	case <-turn:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), r.Reject(nil))
	}
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), r.Reject(nil))
	}
	s, err := l.connect(ctx, r, hello)
	if err != nil {
		<-l.places
		return nil, errors.Join(leave(), err)
	}
	return s, nil
}

func (l *Listener) connect(ctx context.Context, r *rdmacm.Request, hello wire.Hello) (*Conn, error) {
	s := &Conn{cm: l.cm}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.HandshakeTimeout)
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

// Addr is the address that the listener listens at.
func (l *Listener) Addr() net.Addr { return addr{l.listener.Addr()} }

// Close ends listening. Streams that Accept has returned go on. Closing twice is not an
// error.
func (l *Listener) Close() error {
	l.shut.Do(func() {
		l.cancel()
		l.shutErr = l.listener.Close()
		l.all.Wait()
	})
	return l.shutErr
}
