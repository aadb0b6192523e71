package verbs

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/verbs/internal/hangup"
	serving "github.com/goverbs/goverbs/verbs/internal/serve"
)

// DialLink makes a link with a program at "host:port" that calls [ServeLinks]. The TCP
// connection belongs to the link, and closes with it. When the peer closes its end, the
// queue pair ends here too: waits for requests and messages fail, and [QP.Err] matches
// [io.EOF]. A peer whose host is gone is noticed by keep-alives of the TCP connection,
// after cfg.QP.KeepAlive.
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
	keepConnAlive(conn, cmp.Or(cfg.QP.KeepAlive, DefaultKeepAlive))
	cfg.QP.KeepAlive = 0
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
// [DialLink], as [ServeLinks] does with each. The connection belongs to the link, and
// closes with it, or if no link comes about. When the connection ends, so does the queue
// pair. Without a deadline in ctx a silent peer is given up after [ExchangeTimeout].
func AcceptLink(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	return newLinkOf(ctx, conn, cfg)
}

// ServeLinks makes a link of each connection that l accepts, and calls serve with it, in
// a goroutine of its own; the link closes when serve returns. The context of serve ends
// when the peer closes its end, when the queue pair fails, and with ctx.
//
// A client that does not complete its end of the link is given up after
// [ExchangeTimeout]. While the process is out of files or memory for a connection,
// ServeLinks waits. It serves until ctx ends or l fails, closes l, and returns when all
// calls of serve have returned. failed, which may be nil, is called with the error of a
// client's link or of serve, unless the peer had closed its end; several goroutines may
// call it.
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
