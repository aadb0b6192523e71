package server

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/hook"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Do carries out a request of this process, such as a gateway's. The reply's value is a copy, in
// the request's Into if that has room. If there is no free memory, Do waits at most two leases for
// memory in quarantine.
func (s *Server) Do(ctx context.Context, q *kv.Request) (kv.Reply, error) {
	if err := ctx.Err(); err != nil {
		return kv.Reply{}, fmt.Errorf("cache: %w", err)
	}
	came := time.Since(s.begun)
	a, err := s.do(ctx, q)
	if err == nil {
		s.took(latency.Gateway, latency.Of(q), came)
	}
	return a, err
}

func (s *Server) do(ctx context.Context, q *kv.Request) (kv.Reply, error) {
	var enough <-chan time.Time // of waiting
	for {
		s.mu.Lock()
		if s.store == nil || s.closed {
			s.mu.Unlock()
			return kv.Reply{}, fmt.Errorf("cache: %w", ErrClosed)
		}
		a := s.executeLocal(q)
		a.Value = append(q.Into[:0], a.Value...)
		quarantine := a.Status == kv.NoMemory && s.store.Stats().Arena.Quarantine > 0
		if s.announce(); quarantine {
			s.askAll()
			if s.settled == nil {
				s.settled = make(chan struct{})
			}
		}
		settled := s.settled
		var over chan struct{}
		if q.Op == kv.OpFlush && !s.store.Flushed(a.Seq) {
			over = make(chan struct{})
			s.awaitFlush(a.Seq, func() { close(over) })
		}
		s.mu.Unlock()
		if over != nil {
			return a.Reply, s.flushed(ctx, over)
		}
		if !quarantine {
			return a.Reply, nil
		}
		if enough == nil {
			enough = time.After(2 * s.cfg.Lease)
		}
		select { // clients are soon done with what was freed, or cut off
		case <-settled:
		case <-enough: // others have taken it
			return a.Reply, nil
		case <-ctx.Done():
			return kv.Reply{}, ctx.Err()
		case <-s.stopped.Done():
		}
	}
}

func init() { hook.Entry = func(s any, key []byte) wire.Entry { return s.(*Server).entry(key) } }

func (s *Server) entry(key []byte) wire.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.DoLocal(s.now(), &kv.Request{Op: kv.OpGet, Want: kv.WantNoValue | kv.WantNoBump, Key: key}).Entry
}
