package own

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// simClient does one operation after the other.
type simClient struct {
	w         *world
	id, host  int
	placement *place.Placement
	sessions  []session // by the server's host
}

// session is what a client knows of a life of a server.
type session struct {
	server *simServer
	grant  clientGrant
	asking time.Duration // a grant, at that time
}

// simGrant lets a client READ until a time of the server's clock, which wrote it at another one.
type simGrant struct{ until, clock time.Duration }

// clientGrant is what package mirror has of a server's grants and clock, with clocks that drift further.
type clientGrant struct {
	until time.Duration
	known bool
	clock time.Duration // of the server, at the local time asked or later
	asked time.Duration
}

// heard takes a grant, which is the reply to what was sent at the local time asked, or none if that is below 0.
func (c *clientGrant) heard(g simGrant, asked, now time.Duration) {
	c.until = max(c.until, g.until)
	latest, ok := c.latest(now)
	if g.clock > latest {
		c.known, ok = false, false // the local clock has stood still
	}
	if asked >= 0 && (!ok || g.clock+passed(now-asked) <= latest) {
		c.known, c.clock, c.asked = true, g.clock, asked
	}
}

// passed returns how far the server's clock can go on in a time of the local clock.
func passed(d time.Duration) time.Duration { return d + d/time.Duration(worse.Drift-1) + 1 }

// latest returns the latest time that the server's clock can show.
func (c *clientGrant) latest(now time.Duration) (latest time.Duration, ok bool) {
	return c.clock + passed(now-c.asked), c.known
}

// remaining returns for how long the grant lasts at least.
func (c *clientGrant) remaining(now time.Duration) time.Duration {
	latest, ok := c.latest(now)
	if !ok {
		return 0
	}
	return c.until - latest
}

func newSimClient(w *world, id int) *simClient {
	c := &simClient{w: w, id: id, host: len(w.servers) + id, sessions: make([]session, len(w.servers))}
	w.After(w.upTo(100*time.Millisecond), c.next)
	return c
}

func (c *simClient) now() time.Duration { return c.w.clock(c.host) }

// heard takes what a server says.
func (c *simClient) heard(from *simServer, p *place.Placement, g simGrant, asked time.Duration) {
	s := &c.sessions[from.host]
	if s.server != nil && from.life.Boot < s.server.life.Boot {
		return
	}
	if s.server != from {
		*s = session{server: from}
	}
	if c.placement == nil || p.Epoch > c.placement.Epoch {
		c.placement = p
	}
	now := c.now()
	if c.w.receipt && asked >= 0 {
		asked = now
	}
	s.grant.heard(g, asked, now)
}

// renew asks for a grant if little of the last one is left.
func (c *simClient) renew(s *session) {
	asked := c.now()
	if s.server == nil || s.grant.remaining(asked) > worse.Lease()/2 || asked-s.asking < 100*time.Millisecond {
		return
	}
	s.asking = asked
	server := s.server
	c.w.send(c.host, server.host, server.on(func() {
		if server.m.Placement() == nil {
			return
		}
		p, g := server.m.Placement(), server.grant()
		c.w.send(server.host, c.host, func() { c.heard(server, p, g, asked) })
	}))
}

// again begins the next operation after a pause.
func (c *simClient) again() {
	c.w.After(c.w.upTo(20*time.Millisecond), func() { c.w.on(c.host, c.next) })
}

// next begins an operation on any shard, mostly at its owner.
func (c *simClient) next() {
	i, at := c.w.any(shards), c.w.any(len(c.w.servers))
	if c.placement != nil && (!c.w.rough || !c.w.oneIn(8)) {
		if owner := c.placement.Member(c.placement.Shards[i].Owner); owner != nil {
			at = hostOf(owner.Life)
		}
	}
	if c.w.any(10) < 7 {
		c.read(i, at)
	} else {
		c.call(i, at, c.w.oneIn(2), c.w.Now)
	}
}

// delay is that of one way of a READ, with a pause of the client now and then.
func (c *simClient) delay() time.Duration {
	d := c.w.upTo(2 * time.Millisecond)
	if c.w.rough && c.w.Now < quiet && c.w.oneIn(100) {
		d += c.w.upTo(3 * time.Second)
	}
	return d
}

// read READs, and falls back to a call if what was READ does not count.
func (c *simClient) read(i, at int) {
	s, begun := &c.sessions[at], c.w.Now
	c.renew(s)
	server := s.server
	if server == nil {
		c.call(i, at, false, begun)
		return
	}
	c.w.After(c.delay(), func() {
		if !server.alive || c.w.isCut(c.host, at) || c.w.isCut(at, c.host) {
			c.w.After(300*time.Millisecond, func() { c.w.on(c.host, c.again) })
			return
		}
		v := server.memory[i] // the device does it, whatever the program does
		c.w.After(c.delay(), func() {
			c.w.on(c.host, func() {
				granted := s.server == server && s.grant.remaining(c.now()) > 0
				if !v.alive || !granted && !c.w.unchecked { // no record, or one that does not count
					c.call(i, at, false, begun)
					return
				}
				c.w.hits++
				c.done(op{i, begun, c.w.Now, v, fmt.Sprint("READ at ", at)})
			})
		})
	})
}

// call sends a call; without a reply it gives up.
func (c *simClient) call(i, at int, set bool, begun time.Duration) {
	asked, over := c.now(), false
	c.w.send(c.host, at, func() {
		server := c.w.server(at)
		if !server.alive {
			return
		}
		server.call(i, set, func(v value, ok bool) {
			p, g := server.m.Placement(), server.grant()
			c.w.send(at, c.host, func() {
				c.heard(server, p, g, asked)
				if over {
					return
				}
				over = true
				if !ok {
					c.w.refused++
					c.again()
					return
				}
				if set {
					c.w.sets++
				} else {
					c.w.calls++
				}
				c.done(op{i, begun, c.w.Now, v, fmt.Sprintf("call at %d (set %v)", at, set)})
			})
		})
	})
	c.w.After(400*time.Millisecond, func() {
		c.w.on(c.host, func() {
			if !over {
				over = true
				c.again()
			}
		})
	})
}

// done notes an operation's result.
func (c *simClient) done(o op) {
	c.w.history = append(c.w.history, o)
	c.again()
}
