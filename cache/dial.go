package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// connectBy makes a session, and returns when its map has begun. It reports whether the
// server was reached and has admitted this client.
func (c *Client) connectBy(ctx context.Context, by Transport, alive func()) (*session, bool, error) {
	s := &session{
		c: c, by: by, alive: alive, begun: time.Now(), before: c.told.Load(), over: make(chan struct{}), first: make(chan struct{}), idle: make(chan struct{}),
		m:       mirror.New(mirror.Config{Budget: c.cfg.entries()}),
		buffers: buffers{every: map[*slab]bool{}, turn: semaphore.NewWeighted(longBytes)},
		calls:   map[uint64]*call{}, wake: make(chan struct{}, 1), room: make(chan struct{}),
	}
	s.live, s.stop = context.WithCancel(c.ctx)
	err := s.dial(ctx)
	if err == nil {
		select {
		case <-s.first:
			c.count.sessions.Add(1)
			return s, true, nil
		case <-s.over:
			err = s.cause()
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.ctx.Done():
			err = ErrClosed
		}
	}
	s.end(err)
	return nil, s.greeted, errors.Join(err, s.close())
}

func (s *session) dial(ctx context.Context) (err error) {
	if s.by == TCP {
		return s.dialTCP(ctx)
	}
	if s.near, err = newNear(&s.c.cfg); err != nil {
		return err
	}
	if s.by == DC {
		return s.dialThrough(ctx)
	}
	cfg := link.Config(verbs.LinkConfig{PD: s.c.cfg.PD, Connect: s.c.cfg.Connect, Dialer: s.c.cfg.Dialer}, receives)
	cfg.ReceiveApart = true // a SEND's completion must wake no goroutine
	cfg.PollFor = s.c.cfg.PollFor
	cfg.Greet = func(ctx context.Context, conn net.Conn) error { return s.greet(ctx, conn, greet.RDMA) }
	cfg.Setup = func(l *verbs.Link) (verbs.Offer, error) {
		dev := l.PD().Device()
		if err := s.c.checkPacer(dev); err != nil {
			return verbs.Offer{}, err
		}
		cq, err := dev.CreateCQ(verbs.CQConfig{Spin: s.c.cfg.Spin, PollFor: s.c.cfg.PollFor, Vector: dev.NextVector()})
		if err != nil {
			return verbs.Offer{}, err
		}
		if err := l.AddCloser(cq); err != nil {
			return verbs.Offer{}, err
		}
		var offer verbs.Offer
		s.reads, offer, err = link.Prepare(l, verbs.LinkConfig{PD: l.PD(), QP: verbs.QPConfig{SendCQ: cq, MaxRecvWR: 1, Access: verbs.LocalWrite}}, wire.Hello{Frames: receives, Beats: s.near != nil}, nil, s.seal)
		return offer, err
	}
	if s.link, err = verbs.DialLink(ctx, s.c.address, cfg); err != nil {
		s.greeted = s.greeted && !errors.Is(err, ErrPacer) // which TCP is no way around
		return err
	}
	hello, err := link.Join(s.link, s.reads, s.c.cfg.Connect, s.seal)
	if errors.Is(err, greet.ErrSeal) { // an attacker is on the path, which must not get it by TCP
		s.greeted = false
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if err != nil {
		return err
	}
	s.regions = s.link.Regions()
	if s.read, err = s.reads.Requester(); err != nil {
		return err
	}
	if s.conn, err = link.NewMessages(s.link, hello, receives, 0); err != nil {
		return err
	}
	s.run()
	return nil
}
