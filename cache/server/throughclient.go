package server

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// serveThrough serves a client that READs through the target. Its messages come by TCP.
func (s *Server) serveThrough(ctx context.Context, conn *admitted) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer conn.Close()
	if s.cfg.DC.Responders <= 0 {
		none := s.sealed(&wire.Target{Epoch: s.epoch}, conn.seal)
		_, err := conn.Write(wire.AppendTarget(nil, none))
		return err
	}
	id, c := s.attachThrough(cut, conn.seal)
	if c == nil {
		return ErrClosed
	}
	s.comesFrom(c, conn)
	defer s.depart(id)
	err := s.talk(ctx, link.NewStream(ctx, conn, s.maxRequest()), id, c)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

func (s *Server) attachThrough(cut context.CancelCauseFunc, seal greet.Seal) (uint64, *client) {
	id, c := s.attach(cut, true)
	if c == nil {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.through, c.beats, c.seal = true, true, seal
	c.tell = s.sealed(&s.through.said, seal)
	return id, c
}
