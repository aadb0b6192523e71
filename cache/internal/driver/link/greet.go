package link

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// GreetTimeout is how long a greeting may take, from the last time that the server said to wait.
const GreetTimeout = 5 * time.Second

// Greet greets a server by a hello, with a key or without one, and adds the address of the connection to
// it. It returns where the transport's own messages begin, with the seal for them. alive, which may be nil,
// is called when the server says that it is there and that others connect first.
func Greet(ctx context.Context, conn net.Conn, h greet.Hello, key []byte, alive func()) (greet.Seal, error) {
	defer limited(ctx, conn)()
	h.Address = AddrPort(conn.RemoteAddr())
	c := greet.NewClient(h, key)
	if _, err := conn.Write(c.Hello()); err != nil {
		return greet.Seal{}, because(ctx, err)
	}
	b, err := reply(ctx, conn, alive)
	if err != nil {
		return greet.Seal{}, err
	}
	proof, err := c.HandleChallenge(b)
	if err != nil || proof == nil {
		return greet.Seal{}, err
	}
	if _, err := conn.Write(proof); err != nil {
		return greet.Seal{}, because(ctx, err)
	}
	if b, err = reply(ctx, conn, alive); err == nil {
		err = c.HandleVerdict(b)
	}
	if err != nil {
		return greet.Seal{}, err
	}
	return c.Seal(), nil
}

// AddrPort returns the address of a TCP connection's end, without its zone, and zero for any other.
func AddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := t.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// Message returns the next message of a greeting that is no proof.
func Message(conn net.Conn) ([]byte, error) {
	b := make([]byte, greet.HeadSize, greet.MaxMessage)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	n, err := greet.Length(b)
	if err != nil {
		return nil, err
	}
	b = b[:n]
	_, err = io.ReadFull(conn, b[greet.HeadSize:])
	return b, err
}

// reply returns the next message of the server that does not tell the client to wait.
func reply(ctx context.Context, conn net.Conn, alive func()) ([]byte, error) {
	for range maxLater {
		b, err := Message(conn)
		if err != nil {
			return nil, because(ctx, err)
		}
		if !greet.IsLater(b) {
			return b, nil
		}
		if alive != nil {
			alive()
		}
		_ = conn.SetDeadline(time.Now().Add(GreetTimeout))
		if ctx.Err() != nil { // that may have been set just before
			return nil, ctx.Err()
		}
	}
	return nil, errLater
}

// maxLater is how often a client waits once more: for some minutes.
const maxLater = 300

var errLater = errors.New("the server lets others connect all the time")

// Greeted takes a client's greeting. keyOf returns the key of a tenant, or none if any client is
// admitted. The memory that this takes does not depend on what the client says. The seal is for what
// follows. admit is called when the client has proved its key, or need not: it returns when the client is
// to be told that it is admitted, or an error.
func Greeted(ctx context.Context, conn net.Conn, keyOf func(tenant string) []byte,
	admit func(*greet.Hello, *Waiter) error) (greet.Hello, greet.Seal, error) {
	defer limited(ctx, conn)()
	hello, err := Message(conn)
	if err != nil {
		return greet.Hello{}, greet.Seal{}, because(ctx, err)
	}
	h, err := greet.ReadHello(hello)
	if err != nil {
		if _, other := errors.AsType[*greet.VersionError](err); other {
			_, _ = conn.Write(greet.Unable())
		}
		return h, greet.Seal{}, err
	}
	s := greet.NewServer(hello, keyOf(h.Tenant))
	if !s.Open() {
		if _, err := conn.Write(s.Challenge()); err != nil {
			return h, greet.Seal{}, because(ctx, err)
		}
		var proof [greet.ProofSize]byte
		if _, err := io.ReadFull(conn, proof[:]); err != nil {
			return h, greet.Seal{}, because(ctx, err)
		}
		err = s.HandleProof(proof[:])
	}
	if err == nil {
		err = admit(&h, &Waiter{conn})
	}
	if last := s.Last(err); last != nil {
		_ = conn.SetDeadline(time.Now().Add(GreetTimeout))
		if _, werr := conn.Write(last); err == nil {
			err = because(ctx, werr)
		}
	}
	return h, s.Seal(), err
}

// Waiter is a client that is not told yet that it is admitted.
type Waiter struct{ conn net.Conn }

// Wait tells the client to wait. A client that waits has to be told more often than each [GreetTimeout].
func (w *Waiter) Wait() error {
	_ = w.conn.SetDeadline(time.Now().Add(GreetTimeout))
	_, err := w.conn.Write(greet.Later())
	return err
}

// Attend calls f with a context that ends when the client closes the connection.
func (w *Waiter) Attend(ctx context.Context, f func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	heard := make(chan error, 1)
	go func() {
		_, err := w.conn.Read(make([]byte, 1))
		if err == nil {
			err = greet.ErrMalformed // a client that waits says nothing
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			end(err)
		}
		heard <- err
	}()
	err := f(ctx)
	_ = w.conn.SetReadDeadline(time.Unix(1, 0))
	if h := <-heard; err == nil && !errors.Is(h, os.ErrDeadlineExceeded) {
		err = h
	}
	return err
}

// limited ends I/O on a connection with ctx, or after [GreetTimeout], until the returned function is
// called.
func limited(ctx context.Context, conn net.Conn) (end func()) {
	_ = conn.SetDeadline(time.Now().Add(GreetTimeout))
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-over
		}
		_ = conn.SetDeadline(time.Time{})
	}
}

func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
