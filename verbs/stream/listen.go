package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// Listener is a [net.Listener] for streams.
type Listener struct {
	cm       *rdmacm.CM
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
	s := &Listener{cm: m, listener: l, log: m.Logger(), cfg: cfg, streams: make(chan *Conn), over: make(chan struct{}), places: make(chan struct{}, cfg.Pending)}
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
	s := &Conn{cm: l.cm}
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
