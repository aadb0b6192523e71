package verbs

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// ExchangeTimeout bounds [Exchange] when the context has no deadline.
const ExchangeTimeout = 10 * time.Second

// Exchange sends the local endpoint to the peer and reads the peer's, over any stream
// connection; both sides call it at about the same time. If the peer sends rubbish the
// error is [ErrMessage]; if it sends nothing, the context's error, or
// [os.ErrDeadlineExceeded] after [ExchangeTimeout].
//
// The connection stays open and can be used again afterwards; nothing behind
// the peer's message is read. The message has a checksum but no signature:
// on a network that is not trusted, use TLS underneath.
func Exchange(ctx context.Context, conn net.Conn, local Endpoint) (Endpoint, error) {
	msg, err := local.AppendBinary(nil)
	if err != nil {
		return Endpoint{}, err
	}
	if ctx.Err() != nil {
		return Endpoint{}, exchangeError(ctx, conn, ctx.Err())
	}
	if _, ok := ctx.Deadline(); !ok {
		conn.SetDeadline(time.Now().Add(ExchangeTimeout))
	}
	defer interruptible(ctx, conn)()
	remote, err := exchange(conn, msg)
	return remote, exchangeError(ctx, conn, err)
}

// hello reads the endpoint of a peer that speaks first.
func hello(ctx context.Context, conn net.Conn) (Endpoint, error) {
	if ctx.Err() != nil {
		return Endpoint{}, exchangeError(ctx, conn, ctx.Err())
	}
	defer interruptible(ctx, conn)()
	remote, err := readEndpoint(conn)
	return remote, exchangeError(ctx, conn, err)
}

// reply sends the local endpoint to a peer that has spoken first.
func reply(ctx context.Context, conn net.Conn, local Endpoint) error {
	msg, err := local.AppendBinary(nil)
	if err != nil {
		return err
	}
	defer interruptible(ctx, conn)()
	_, err = conn.Write(msg)
	return exchangeError(ctx, conn, err)
}

func exchangeError(ctx context.Context, conn net.Conn, err error) error {
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	var detail []any
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		detail = append(detail, "the peer closed the connection before it had sent its address: its Greet or Setup may have failed")
	}
	return opError("exchange addresses with", conn.RemoteAddr().String(), err, detail...)
}

func exchange(conn net.Conn, msg []byte) (Endpoint, error) {
	// At once in both directions: a pipe without a buffer would otherwise have
	// both sides writing and neither reading.
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(msg)
		sent <- err
	}()
	remote, err := readEndpoint(conn)
	if err != nil {
		conn.SetDeadline(longAgo) // ends the write too
		<-sent
		return Endpoint{}, err
	}
	return remote, <-sent
}

// interruptible makes the end of ctx end reads and writes of conn, until end is
// called.
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
