package server

import (
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/pending"
)

// slow slows down clients that are cut off again and again because they have not said that they are done
// with what was freed: each of them keeps that from reuse, for up to a lease. After a second time in a row a
// client from the same address has to wait before it may READ, and for twice as long after each further
// time; by TCP it may connect meanwhile. Clients that hang together, as when their host does, are one time. The
// server's mu guards it.
type slow map[netip.Prefix]*offender

type offender struct {
	times int
	last  time.Time // when the last time began
	until time.Time // clients wait
}

// longestPause is how long a client waits at most, in leases, and how long it must not be cut off to be
// forgotten.
const longestPause = 32

// cut notes that a client was cut off that had come at some time, and returns how long the next one from there
// has to wait.
func (s slow) cut(from netip.Prefix, came, now time.Time, lease time.Duration) (wait time.Duration) {
	p := s[from]
	switch {
	case p == nil:
		p = &offender{}
		s[from] = p
	case came.Before(p.last) && now.Sub(p.last) < lease:
		return 0
	}
	if p.times > 0 {
		wait = min(lease<<min(p.times-1, 16), longestPause*lease)
	}
	p.times++
	p.last, p.until = now, now.Add(wait)
	return wait
}

// forget drops what is of no use any more.
func (s slow) forget(now time.Time, lease time.Duration) {
	for from, p := range s {
		if now.Sub(p.until) > longestPause*lease {
			delete(s, from)
		}
	}
}

// comesFrom notes where a client comes from, and when.
func (s *Server) comesFrom(c *client, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.from, c.came = pending.Source(conn.RemoteAddr()), time.Now()
}

// punish notes that a client was cut off. s.mu must be held.
func (s *Server) punish(c *client) {
	if wait := s.slow.cut(c.from, c.came, time.Now(), s.cfg.Lease); wait > 0 {
		s.cfg.Logger.Warn("cache: clients of an address do not say that they are done with what was freed, and use TCP for some time", "address", c.from.Addr().String(), "time", wait)
	}
}

// mayREAD returns a channel that closes when a client from an address may READ, and a function that frees it.
func (s *Server) mayREAD(from net.Addr) (ready chan struct{}, free func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready = make(chan struct{})
	p := s.slow[pending.Source(from)]
	if p == nil || time.Until(p.until) <= 0 {
		close(ready)
		return ready, func() bool { return true }
	}
	return ready, time.AfterFunc(time.Until(p.until), func() { close(ready) }).Stop
}
