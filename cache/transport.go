package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/operr"
)

// Transport is how a client is connected.
type Transport string

const (
	RDMA Transport = "RDMA" // a hit is a READ
	TCP  Transport = "TCP"  // everything is an RPC: see RequireRDMA of [Config]
	DC   Transport = "DC"   // a hit is a READ through the initiator of [Config], and RPCs go by TCP
)

// rdmaShare is how long an attempt by one way may take at most, if there is another one after it.
const rdmaShare = 7 * time.Second

// drained is how long operations by a connection that was replaced may take.
const drained = 10 * time.Second

// ways returns the ways by which a client connects, the best one first.
func (c *Client) ways() []Transport {
	w := []Transport{RDMA}
	if c.cfg.DC != nil {
		w = []Transport{DC, RDMA}
	}
	if !c.cfg.RequireRDMA {
		w = append(w, TCP)
	}
	return w
}

// connect makes a session, by the first of these ways that there is to a server that admits this client. A client
// that is told to wait goes the next way meanwhile; if there is none it waits. alive is called when the server says
// so: that does not count as time of the attempt.
func (c *Client) connect(ctx context.Context, ways []Transport, alive func()) (*session, error) {
	var fallback error
	for i, by := range ways {
		last := i == len(ways)-1
		connect := c.connectShare
		if last {
			connect = c.connectBy
		}
		s, greeted, err := connect(ctx, by, alive)
		if err == nil {
			s.fallback = fallback
			s.waits = waited(fallback) != nil
			c.logFallback(s)
			return s, nil
		}
		fallback = errors.Join(fallback, err)
		if !greeted && (last || waited(err) == nil) || ctx.Err() != nil || c.ctx.Err() != nil {
			break
		}
	}
	return nil, fallback
}

// connectShare is connectBy, in a part of the time left, and does not wait if the server says so.
func (c *Client) connectShare(ctx context.Context, by Transport, _ func()) (*session, bool, error) {
	share, begun := rdmaShare, time.Now()
	if end, ok := ctx.Deadline(); ok {
		share = min(share, time.Until(end)*2/3)
	}
	first, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	s, greeted, err := c.connectBy(first, by, cancel)
	if err != nil && first.Err() != nil && ctx.Err() == nil {
		if w := waited(err); w != nil {
			err = w
		} else {
			err = fmt.Errorf("no %s connection within %v", by, time.Since(begun).Round(time.Millisecond))
		}
	}
	return s, greeted, err
}

// waitError is the error of an attempt that ended while the server said to wait.
type waitError struct {
	by     Transport
	waited time.Duration
}

func (e *waitError) Error() string {
	return fmt.Sprintf("no %s connection within %v: the server said to wait", e.by, e.waited.Round(time.Millisecond))
}

// waited returns the waitError that err contains, or nil.
func waited(err error) (w *waitError) {
	errors.As(err, &w)
	return w
}

// logFallback logs that a session is not by the best way.
func (c *Client) logFallback(s *session) {
	log := c.cfg.Logger.With("server", c.address, "error", s.fallback)
	switch {
	case s.fallback == nil:
	case s.waits:
		log.Info("cache: the server said to wait", "transport", s.by)
	case s.by == TCP:
		log.Warn("cache: there is no RDMA: hits are calls by TCP")
	case errors.Is(s.fallback, errNoTarget):
		log.Info("cache: hits are not READ through the initiator")
	default:
		log.Warn("cache: hits are not READ through the initiator")
	}
}

// greet authenticates this client and the server to each other.
func (s *session) greet(ctx context.Context, conn net.Conn, t greet.Transport) error {
	h := greet.Hello{Transport: t, Tenant: s.c.cfg.Tenant, Server: s.c.address, Client: s.c.id}
	seal, err := link.Greet(ctx, conn, h, s.c.cfg.Key, func() { s.waits = true; s.alive() })
	for _, why := range []error{greet.ErrDenied, greet.ErrKeyWanted, greet.ErrServerUnauthenticated, greet.ErrFull} {
		if errors.Is(err, why) {
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	if _, other := errors.AsType[*greet.OtherError](err); other {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if err != nil && s.waits {
		err = fmt.Errorf("%w: %w", &waitError{s.by, time.Since(s.begun)}, err)
	}
	s.greeted, s.seal, s.waits = err == nil, seal, false
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
		return operr.Dial(s.c.address, err)
	}
	by := greet.TCP
	if s.by == DC {
		by = greet.DC
	}
	if err := s.greet(ctx, conn, by); err != nil {
		return errors.Join(err, conn.Close())
	}
	if s.by == DC {
		return s.attach(ctx, conn)
	}
	s.conn = link.NewStream(s.live, conn, 0)
	s.run()
	return nil
}

// hopes reports whether there may be a better way later than the one that this session is by. A server without
// a target gets none while it lives, and an initiator that was closed is of no use any more.
func (s *session) hopes() bool {
	return s.by != s.c.ways()[0] && (s.by == TCP || !errors.Is(s.fallback, errNoTarget) && !errors.Is(s.fallback, dc.ErrClosed))
}

// better tries to connect by a better way than that of the client's session s, and gives up when s ends.
func (c *Client) better(s *session) *session {
	ctx, cancel := context.WithCancel(s.live)
	defer cancel()
	limit := time.AfterFunc(attempt, cancel)
	defer limit.Stop()
	ways := c.ways()
	b, err := c.connect(ctx, ways[:slices.Index(ways, s.by)], func() { limit.Reset(attempt) })
	if err != nil {
		c.cfg.Logger.Info("cache: there is still no better way to connect", "server", c.address, "transport", s.by, "error", err)
		return nil
	}
	c.cfg.Logger.Info("cache: there is a better way to connect", "server", c.address, "transport", b.by)
	return b
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// replace makes b the session instead of s, which closes when what goes on by it has ended. The channel that it
// returns closes then, and not before the one of the last replacement.
//
// RPCs that go on by s may learn of changes that b has not been told of, so b uses no copies until NearStale after
// the last of them.
func (c *Client) replace(s, b *session, before <-chan struct{}) (over chan struct{}) {
	b.copiesFrom(math.MaxInt64)
	c.set(b, nil)
	over = make(chan struct{})
	go func() {
		defer close(over)
		c.drain(s)
		<-before
		b.copiesFrom(b.clock() + int64(c.cfg.NearStale/time.Millisecond) + 1)
	}()
	return over
}

// drain closes a session when what goes on by it has ended, or after drained.
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
