package link

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// GreetTimeout is how long a greeting may take.
const GreetTimeout = 5 * time.Second

// Greet greets a server, for a tenant that has a key, or none. It returns where what the
// transport has to say begins.
func Greet(ctx context.Context, conn net.Conn, t greet.Transport, tenant string, key []byte) error {
	defer limited(ctx, conn)()
	c := greet.NewClient(t, tenant, key)
	if _, err := conn.Write(c.Hello()); err != nil {
		return because(ctx, err)
	}
	var b [max(greet.ChallengeSize, greet.VerdictSize)]byte
	if _, err := io.ReadFull(conn, b[:greet.ChallengeSize]); err != nil {
		return because(ctx, err)
	}
	proof, err := c.Challenged(b[:greet.ChallengeSize])
	if err != nil || proof == nil {
		return err
	}
	if _, err := conn.Write(proof); err != nil {
		return because(ctx, err)
	}
	if _, err := io.ReadFull(conn, b[:greet.VerdictSize]); err != nil {
		return because(ctx, err)
	}
	return c.Judged(b[:greet.VerdictSize])
}

// Greeted takes a client's greeting. keyOf answers the key of a tenant, none if everybody may
// come in; room tells whether there is any for another client of a tenant's. The memory that
// this takes does not depend on what the client says.
func Greeted(ctx context.Context, conn net.Conn, keyOf func(tenant string) []byte, room func(tenant string) bool) (greet.Hello, error) {
	defer limited(ctx, conn)()
	var b [max(greet.HelloSize, greet.ProofSize)]byte
	if _, err := io.ReadFull(conn, b[:greet.HelloSize]); err != nil {
		return greet.Hello{}, because(ctx, err)
	}
	h, err := greet.ReadHello(b[:greet.HelloSize])
	if err != nil {
		return h, err
	}
	s := greet.NewServer(b[:greet.HelloSize], keyOf(h.Tenant))
	if _, err := conn.Write(s.Challenge()); err != nil || s.Open() {
		return h, because(ctx, err)
	}
	if _, err := io.ReadFull(conn, b[:greet.ProofSize]); err != nil {
		return h, because(ctx, err)
	}
	verdict, err := s.Proved(b[:greet.ProofSize], room(h.Tenant))
	if _, werr := conn.Write(verdict); err == nil {
		err = because(ctx, werr)
	}
	return h, err
}

// limited has what is done with a connection end with ctx, and after [GreetTimeout], until
// the function that it answers is called.
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
