package verbs

import (
	"cmp"
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/verbs/internal/hangup"
	serving "github.com/goverbs/goverbs/verbs/internal/serve"
)

// DialLink makes a link with a program at "host:port" that calls [ServeLinks]. The TCP
// connection belongs to the link, and closes with it. When the peer closes its end, the
// queue pair ends here too: waits for requests and messages fail, and [QP.Err] matches
// [io.EOF]. The loss of the peer's host is noticed by keep-alives of the TCP connection,
// after cfg.QP.KeepAlive, and the error matches [ErrUnreachable].
func DialLink(ctx context.Context, address string, cfg LinkConfig) (_ *Link, err error) {
	d := cfg.Dialer
	if d == nil {
		d = &net.Dialer{}
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, operr.Dial(address, err)
	}
	greeted := false
	defer closeUnless(&greeted, conn, &err)
	if cfg.Greet != nil {
		if err := cfg.Greet(ctx, conn); err != nil {
			return nil, err
		}
	}
	greeted = true
	return newLinkOf(ctx, conn, cfg, nil)
}

// newLinkOf makes a link that owns its connection and ends with it.
func newLinkOf(ctx context.Context, conn net.Conn, cfg LinkConfig, first *Endpoint) (_ *Link, err error) {
	keepConnAlive(conn, cmp.Or(cfg.QP.KeepAlive, DefaultKeepAlive))
	cfg.QP.KeepAlive = 0
	l, made, owned := &Link{pd: cfg.PD}, false, false
	defer closeUnless(&owned, conn, &err)
	defer closeUnless(&made, l, &err)
	if err = l.connect(ctx, conn, &cfg, first); err != nil {
		return nil, err
	}
	qp := l.qp
	// Without a requester nothing else ends the queue pair.
	h := hangup.New(conn, func(err error) { qp.fail(hangupCause(err)) })
	owned = true
	if err := l.own(h); err != nil { // Setup had it closed
		return nil, err
	}
	made = true
	return l, nil
}

var errHungUp = errors.New("the peer closed the link")

// hangupCause returns the meaning of the end of a link's connection: if the peer's host is
// gone, the peer has not closed it.
func hangupCause(err error) error {
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) {
		return class(ErrUnreachable, err)
	}
	return class(errHungUp, err)
}

// AcceptLink makes a link of a connection that a program has accepted from a client of
// [DialLink], as [ServeLinks] does with each. It makes nothing before the client has sent
// its endpoint. The connection belongs to the link, and closes with it, or if no link
// comes about. When the connection ends, so does the queue pair. Without a deadline in
// ctx a silent peer is given up after [ExchangeTimeout].
func AcceptLink(ctx context.Context, conn net.Conn, cfg LinkConfig) (*Link, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ExchangeTimeout)
		defer cancel()
	}
	first, err := hello(ctx, conn)
	if err != nil {
		return nil, dismiss(conn, err)
	}
	return newLinkOf(ctx, conn, cfg, &first)
}

// dismiss closes the connection of a client that has not sent an endpoint.
func dismiss(conn net.Conn, err error) error {
	if errors.Is(err, ErrMessage) { // it may wait for ours
		refuse(conn)
	}
	return errors.Join(err, conn.Close())
}

// ServeLinks makes a link of each connection that l accepts, and calls serve with it, in
// a goroutine of its own; the link closes when serve returns. The context of serve ends
// when the peer closes its end, when the queue pair fails, and with ctx.
//
// Nothing is made for a client before it has sent its endpoint, and until then it has one
// of at most 1024 places, 256 for each IPv4 address or IPv6 /64. When they are taken, the
// oldest connection of the address that has most is closed. A client that does not
// complete its end of the link is given up after [ExchangeTimeout]. While the process is
// out of files or memory for a connection, ServeLinks waits.
//
// ServeLinks closes l when it ends, and returns when all calls of serve have returned: nil if ctx
// ended, and otherwise the error of l, which ends the context of serve too. If ctx has ended
// already, it only closes l and returns the context's error. failed, which may be nil, is
// called with the error of a client's link or of serve, unless the peer had closed its end or
// ctx has ended; several goroutines may call it. A flood of connections calls it once for each
// that loses its place.
func ServeLinks(ctx context.Context, l net.Listener, cfg LinkConfig, serve func(context.Context, *Link) error, failed func(net.Addr, error)) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	places, conns := pending.New(), accept.New(l, nil)
	return serving.Clients(ctx, func(context.Context) (func(context.Context), error) {
		conn, err := conns.Next(ctx.Done())
		return func(ctx context.Context) {
			err := errNoReturn
			defer func() { serving.Tell(ctx, failed, conn.RemoteAddr(), err, errHungUp) }()
			link, failure := acceptPending(ctx, places, conn, cfg)
			if failure == nil {
				failure = serving.Link(ctx, link, serve)
			}
			err = failure
		}, err
	})
}

// acceptPending is AcceptLink for a client that has a place among the pending ones until
// it has sent its endpoint.
func acceptPending(ctx context.Context, places *pending.Conns, conn net.Conn, cfg LinkConfig) (*Link, error) {
	ctx, cancel := context.WithTimeout(ctx, ExchangeTimeout)
	defer cancel()
	silent, evict := context.WithCancelCause(ctx)
	defer evict(nil)
	leave := places.Admit(conn.RemoteAddr(), func() { evict(pending.ErrCrowded) })
	first, err := hello(silent, conn)
	if crowded := leave(); crowded != nil {
		err = opError("link with", conn.RemoteAddr().String(), crowded)
	}
	if err != nil {
		return nil, dismiss(conn, err)
	}
	return newLinkOf(ctx, conn, cfg, &first)
}
