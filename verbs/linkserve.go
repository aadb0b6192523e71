package verbs

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// DialLink makes a link with a program at "host:port" that calls [ServeLinks].
// The TCP connection is the link's, and closes with it. When the peer closes its
// end, the queue pair ends here too: requests and messages that are waited for
// fail, and [QP.Err] matches [io.EOF].
func DialLink(ctx context.Context, address string, cfg LinkConfig) (*Link, error) {
	d := cfg.Dialer
	if d == nil {
		d = &net.Dialer{}
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newLinkOf(ctx, conn, cfg)
}

// newLinkOf makes a link that owns its connection.
func newLinkOf(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	l, err := NewLink(ctx, conn, cfg)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	h := &hangUp{conn: conn, over: make(chan struct{})}
	l.own(h)
	go h.watch(l.qp)
	return l, nil
}

// hangUp ends a queue pair with its TCP connection.
type hangUp struct {
	conn net.Conn
	over chan struct{} // the watch
}

// watch waits until the peer closes the connection, or this side does.
func (h *hangUp) watch(q *QP) {
	defer close(h.over)
	_, err := io.Copy(io.Discard, h.conn)
	if err == nil {
		err = io.EOF
	}
	if errors.Is(err, net.ErrClosed) {
		return
	}
	q.die(opError("use", q.named(), class(errHungUp, err)))
	q.ToError() // without a requester nobody else does
}

var errHungUp = errors.New("the peer closed the link")

func (h *hangUp) Close() error {
	err := h.conn.Close()
	<-h.over
	return err
}

// ServeLinks makes a link of each connection that l accepts, and has serve use it,
// in a goroutine of its own; the link closes when serve returns. The context of
// serve ends when the peer closes its end, when the queue pair fails, and with
// ctx.
//
// It serves until ctx ends or l fails, closes l, and returns when all calls of
// serve have. What becomes of a client is told to failed, which may be nil: the
// error of its link or of serve, unless the peer had closed its end; calls come
// from several goroutines.
func ServeLinks(ctx context.Context, l net.Listener, cfg LinkConfig, serve func(context.Context, *Link) error, failed func(net.Addr, error)) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	var clients sync.WaitGroup
	defer clients.Wait()
	each, stop := context.WithCancel(ctx) // whatever ended the loop
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil:
			return err
		}
		clients.Go(func() {
			link, err := newLinkOf(each, conn, cfg)
			if err == nil {
				err = link.serve(each, serve)
			}
			tellFailed(each, failed, conn.RemoteAddr(), err)
		})
	}
}

func tellFailed(ctx context.Context, failed func(net.Addr, error), who net.Addr, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, errHungUp) && !errors.Is(err, ErrDisconnected) && failed != nil {
		failed(who, err)
	}
}

// serve has a program's function use the link, which then closes.
func (l *Link) serve(ctx context.Context, serve func(context.Context, *Link) error) (err error) {
	defer func() { err = errors.Join(err, l.Close()) }()
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-l.qp.Done():
			stop(l.qp.Err())
		case <-inner.Done():
		}
	}()
	err = serve(inner, l)
	if cause := context.Cause(inner); cause != nil && errors.Is(err, inner.Err()) {
		return cause
	}
	return err
}
