package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
)

// Transport is how a client is connected.
type Transport string

const (
	RDMA Transport = "RDMA" // a hit is a READ
	TCP  Transport = "TCP"  // everything is a call: see RequireRDMA of [Config]
	DC   Transport = "DC"   // a hit is a READ through the initiator of [Config], and calls go by TCP
)

// rdmaShare is how long an attempt by RDMA may take at most, where TCP is to have a chance
// after it.
const rdmaShare = 7 * time.Second

// drained is how long calls of a connection may take that was replaced.
const drained = 10 * time.Second

// connect makes a session: by RDMA, or, if that may be and the server admits this client, by
// TCP. alive is called when the server says that others connect first: how long that takes is not
// the attempt's fault.
func (c *Client) connect(ctx context.Context, alive func()) (*session, error) {
	if c.cfg.DC != nil {
		s, greeted, err := c.connectBy(ctx, DC, alive)
		if err == nil || !greeted || ctx.Err() != nil || c.ctx.Err() != nil || !errors.Is(err, errNoTarget) {
			return s, err
		}
		c.cfg.Logger.Info("cache: the server has no target to READ through", "server", c.address)
	}
	if c.cfg.RequireRDMA {
		s, _, err := c.connectBy(ctx, RDMA, alive)
		return s, err
	}
	share := func() time.Duration {
		if end, ok := ctx.Deadline(); ok {
			return min(rdmaShare, time.Until(end)*2/3)
		}
		return rdmaShare
	}
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(share(), cancel)
	defer limit.Stop()
	s, greeted, err := c.connectBy(first, RDMA, func() {
		limit.Reset(share())
		alive()
	})
	if err != nil && first.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no RDMA connection within %v", rdmaShare)
	}
	if err == nil || !greeted || ctx.Err() != nil || c.ctx.Err() != nil {
		return s, err
	}
	s, _, other := c.connectBy(ctx, TCP, alive)
	if other != nil {
		return nil, errors.Join(err, other)
	}
	c.cfg.Logger.Warn("cache: there is no RDMA: hits are calls by TCP", "server", c.address, "error", err)
	s.instead = err
	return s, nil
}

// greet tells a server who this client is.
func (s *session) greet(ctx context.Context, conn net.Conn, t greet.Transport) error {
	seal, err := link.Greet(ctx, conn, t, s.c.cfg.Tenant, s.c.cfg.Key, s.alive)
	for _, why := range []error{greet.ErrDenied, greet.ErrKeyWanted, greet.ErrStranger, greet.ErrFull} {
		if errors.Is(err, why) {
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	s.greeted, s.seal = err == nil, seal
	return err
}

// dialTCP connects without RDMA.
func (s *session) dialTCP(ctx context.Context) error {
	d := s.c.cfg.Dialer
	if d == nil {
		d = &net.Dialer{}
	}
	conn, err := d.DialContext(ctx, "tcp", s.c.address)
	if err != nil {
		return err
	}
	by := greet.TCP
	if s.by == DC {
		by = greet.DC
	}
	if err := s.greet(ctx, conn, by); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.conn = link.NewStream(s.live, conn, 0)
	if s.by == DC {
		if err := s.meetTarget(ctx, conn); err != nil {
			return err
		}
	}
	s.run()
	return nil
}

// better tries to connect a client by RDMA that has a session by TCP, while that lives: when it
// ends nobody waits for this attempt.
func (c *Client) better(tcp *session) *session {
	ctx, cancel := context.WithCancel(tcp.live)
	defer cancel()
	limit := time.AfterFunc(attempt, cancel)
	defer limit.Stop()
	s, _, err := c.connectBy(ctx, RDMA, func() { limit.Reset(attempt) })
	if err != nil {
		c.cfg.Logger.Info("cache: there is still no RDMA", "server", c.address, "error", err)
		return nil
	}
	c.cfg.Logger.Info("cache: there is RDMA", "server", c.address)
	return s
}

// drain closes a session when its calls have ended.
func (c *Client) drain(s *session) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(drained); !s.endIdle(errReplaced) && time.Now().Before(end) && c.ctx.Err() == nil; {
		<-tick.C
	}
	s.end(errReplaced)
	if err := s.close(); err != nil {
		c.cfg.Logger.Error("cache: close connection", "server", c.address, "error", err)
	}
}
