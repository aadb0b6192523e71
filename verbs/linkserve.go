package verbs

import (
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/verbs/internal/hangup"
	serving "github.com/goverbs/goverbs/verbs/internal/serve"
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
	if cfg.Greet != nil {
		if err := cfg.Greet(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return newLinkOf(ctx, conn, cfg)
}

// newLinkOf makes a link that owns its connection, whose end is the link's.
func newLinkOf(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	l, err := NewLink(ctx, conn, cfg)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	qp := l.qp
	// Without a requester nobody else ends the queue pair.
	h := hangup.New(conn, func(err error) { qp.End(class(errHungUp, err)) })
	if err := l.own(h); err != nil { // Setup had it closed
		return nil, err
	}
	return l, nil
}

var errHungUp = errors.New("the peer closed the link")

// AcceptLink makes a link of a connection that a program has accepted from a client of
// [DialLink], as [ServeLinks] does of each: the connection is the link's, and is closed with it, or
// when there is no link; and its end is the queue pair's. Without a deadline in ctx a peer that says
// nothing is given up after [ExchangeTimeout].
func AcceptLink(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	return newLinkOf(ctx, conn, cfg)
}

// ServeLinks makes a link of each connection that l accepts, and has serve use it,
// in a goroutine of its own; the link closes when serve returns. The context of
// serve ends when the peer closes its end, when the queue pair fails, and with
// ctx.
//
// A client that does not make its end of the link is given up after
// [ExchangeTimeout]. While the process has no file or memory for a connection, it waits
// until there is some. It serves until ctx ends or l fails, closes l, and returns when all calls of
// serve have. What becomes of a client is told to failed, which may be nil: the
// error of its link or of serve, unless the peer had closed its end; calls come
// from several goroutines.
func ServeLinks(ctx context.Context, l net.Listener, cfg LinkConfig, serve func(context.Context, *Link) error, failed func(net.Addr, error)) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	return serving.Clients(ctx, func(context.Context) (func(context.Context), error) {
		conn, err := accept.Next(l, ctx.Done())
		return func(ctx context.Context) {
			making, made := context.WithTimeout(ctx, ExchangeTimeout)
			link, err := newLinkOf(making, conn, cfg)
			made()
			if err == nil {
				err = serving.Link(ctx, link, serve)
			}
			serving.Tell(ctx, failed, conn.RemoteAddr(), err, errHungUp)
		}, err
	})
}
