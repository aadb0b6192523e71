package server

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/advice"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// A client that is connected by RDMA, or READs through the target, has a map of its own, which it is told all
// changes of, or probes the server's table. To a client that probes the server sends the beginning of a map again and
// again, alone: when the client has to say how far it is, which tells it how far the server is, and when the table has
// moved. So what is sent to it does not depend on the number of changes.

// advise looks at the load, and has clients follow the advice. s.mu must be held.
func (s *Server) advise(now time.Time) {
	n := s.store.Stats()
	load := advice.Load{Records: n.Items, Changes: s.store.Seq(), Reads: n.Reads}
	for _, c := range s.clients {
		if c.follows() {
			load.Clients++
		}
	}
	before := s.advice.Probes()
	probes := s.advice.Observe(now.Sub(s.begun), load)
	if probes != before {
		s.cfg.Logger.Info("cache: the load has changed the way of clients that follow the advice", "clients", load.Clients, "probe", probes)
	}
	left := s.advice.Moves(load.Clients)
	for _, c := range s.clients {
		if left > 0 && c.follows() && c.advised != probes {
			c.advised = probes
			left--
			s.wake(c)
		}
	}
}

// follows reports whether a client does as the server advises.
func (c *client) follows() bool { return c.reads && c.mode == wire.Advised }

// choose takes a client's own choice. s.mu must be held.
func (s *Server) choose(c *client, m wire.Mode) error {
	if !c.reads {
		return wire.Malformed
	}
	c.mode = m
	s.wake(c)
	return nil
}

// gatherProbed appends what a client that probes is to be told. s.mu must be held.
func (s *Server) gatherProbed(c *client, out []byte) []byte {
	if c.alone && !c.due && !c.asks && c.next > s.store.TableMoved() {
		return out
	}
	b := s.beginMap(s.now())
	b.Alone = true
	c.alone, c.snap, c.due, c.asks, c.next = true, false, false, false, b.Seq+1
	c.asked, c.askedOf = time.Now(), b.Seq // it replies
	c.said = c.asked
	return wire.AppendMap(out, &b)
}
