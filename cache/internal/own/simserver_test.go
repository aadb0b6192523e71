package own

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// simServer is one life of a server: what a driver does around the machine.
type simServer struct {
	w     *world
	host  int
	life  place.Life
	alive bool
	m     *Server

	memory  [shards]value // what clients READ, with or without the program
	imports [shards]value
	pulling [shards]bool
	dropped [shards]uint32 // version of the closing for which the record was dropped
	told    map[int]uint32 // epoch of the placement that a client was sent when it changed
}

func (s *simServer) now() time.Duration { return s.w.clock(s.host) }

// on wraps what a message or timer does: nothing once the life has ended.
func (s *simServer) on(do func()) func() {
	return func() {
		if s.alive {
			do()
		}
	}
}

// every does something again and again as long as it returns true.
func (s *simServer) every(d time.Duration, do func() bool) {
	var again func()
	again = s.on(func() {
		if do() {
			s.w.After(d, func() { s.w.on(s.host, again) })
		}
	})
	again()
}

// server returns the current life at a host.
func (w *world) server(host int) *simServer { return w.servers[host] }

func (s *simServer) beat() {
	s.every(worse.Beat(), func() bool {
		sent := s.now()
		s.w.transact(s.host, false, func() { s.w.put(s.life) }, s.beaten(sent))
		if s.m.Silent(sent) {
			s.ask()
		}
		return true
	})
}

// beaten returns what takes the reply to a transaction that was sent at a time.
func (s *simServer) beaten(sent time.Duration) func(View) {
	return func(v View) {
		s.on(func() {
			now := s.now()
			if s.w.receipt {
				sent = now
			}
			s.delete(s.m.Observe(v, sent, now))
			s.act()
			if !s.alive {
				return
			}
			if life, revision, ok := s.m.Dead(now); ok {
				s.take(life, revision)
			} else if life, ok := s.m.Joining(v); ok {
				s.join(life)
			}
			s.pull()
		})()
	}
}

// learn takes a placement that a peer sends.
func (s *simServer) learn(p *place.Placement) {
	s.delete(s.m.Learn(p, s.now()))
	s.act()
}

// delete deletes records of shards that the server has lost. Others are still there when it opens the shard again.
func (s *simServer) delete(lost []int) {
	for _, i := range lost {
		if s.w.oneIn(2) {
			s.memory[i] = value{}
		}
	}
}

// act does what a new placement asks for.
func (s *simServer) act() {
	if s.m.Gone() {
		s.w.crash(s.host, s.w.upTo(time.Second))
		return
	}
	for i := range shards {
		epoch, keep, ok := s.m.Opening(i)
		if !ok {
			continue
		}
		s.w.After(s.w.upTo(30*time.Millisecond), func() {
			s.w.on(s.host, s.on(func() {
				if e, k, ok := s.m.Opening(i); !ok || e != epoch || k != keep {
					return
				}
				switch {
				case keep:
					s.memory[i] = s.imports[i]
				case !s.w.unpurged:
					s.w.lost++
					s.memory[i] = value{epoch: epoch * drops}
				}
				s.m.Open(i, epoch)
				s.spread()
			}))
		})
	}
	s.spread()
}

// entry returns the entry of a life in the placement.
func entry(life place.Life) place.Server {
	return place.Server{Life: life, Address: "a:1", Weight: 1}
}

func (s *simServer) take(dead place.Life, revision int64) {
	read := s.m.Placement()
	next, err := read.TakeOver(dead)
	succeeds := dead.ID == s.life.ID
	if succeeds {
		next, err = read.Succeed(entry(s.life))
	}
	if err != nil {
		s.w.Wrong("%v", err)
		return
	}
	s.m.Sending(dead, revision)
	s.w.transact(s.host, true, func() {
		if s.w.etcd.beats[dead] == revision || s.w.revisionless {
			if s.w.replace(read, next) {
				delete(s.w.etcd.beats, dead)
				if succeeds {
					s.w.successions++
				}
				s.w.takeovers++
			}
		}
		s.w.put(s.life)
	}, s.beaten(s.now()))
}

func (s *simServer) join(life place.Life) {
	read := s.m.Placement()
	next, err := read.Join(entry(life))
	if err != nil {
		s.w.Wrong("%v", err)
		return
	}
	s.m.Sending(place.Life{}, 0)
	s.w.transact(s.host, true, func() {
		if s.w.replace(read, next) {
			s.w.joins++
		}
		s.w.put(s.life)
	}, s.beaten(s.now()))
}

// ask asks all other members for promises.
func (s *simServer) ask() {
	sent := s.now()
	epoch, members := s.m.Ask(sent)
	for _, life := range members {
		to := hostOf(life)
		s.w.send(s.host, to, func() {
			p := s.w.server(to)
			if !p.alive {
				return
			}
			if p.m.Promise(life, s.life, epoch, p.now()) {
				s.w.send(to, s.host, s.on(func() {
					before := s.m.Deadline()
					s.m.Promised(life, sent)
					if s.m.Deadline() > before {
						s.w.promised++
					}
				}))
			} else if known := p.m.Placement(); known != nil && known.Epoch > epoch {
				s.w.send(to, s.host, s.on(func() { s.learn(known) }))
			}
		})
	}
}

// pull asks for a shard that this server is to have by the plan, or now and then for any.
func (s *simServer) pull() {
	p := s.m.Placement()
	if s.m.Number() == 0 {
		return
	}
	for _, m := range p.Plan() {
		if m.To == s.m.Number() && m.From != 0 {
			s.pullShard(m.Shard)
			return
		}
	}
	if s.w.rough && s.w.Now < quiet && s.w.oneIn(20) {
		s.pullShard(s.w.any(shards))
	}
}

func (s *simServer) pullShard(i int) {
	p := s.m.Placement()
	from := p.Shards[i]
	owner := p.Member(from.Owner)
	if s.pulling[i] || owner == nil || from.Owner == s.m.Number() {
		return
	}
	s.pulling[i] = true
	to, tries := hostOf(owner.Life), 0
	s.every(250*time.Millisecond, func() bool {
		if s.m.Placement().Shards[i].Epoch != from.Epoch || tries == 8 {
			s.pulling[i] = false
			return false
		}
		tries++
		s.w.send(s.host, to, func() {
			if o := s.w.server(to); o.alive && o.life == owner.Life {
				o.close(i, from.Epoch, s)
			}
		})
		return true
	})
}

// close begins to give a shard to another server. When it is closed, the record is sent.
func (s *simServer) close(i int, epoch uint32, to *simServer) {
	if s.m.Placement() == nil {
		return
	}
	version, ok := s.m.Close(i, epoch, to.life)
	if !ok {
		return
	}
	if s.dropped[i] != version { // otherwise it has been copied
		v := s.memory[i]
		s.w.send(s.host, to.host, to.on(func() { to.imported(i, epoch, version, v, s) }))
	}
	s.w.After(time.Second+s.w.upTo(4*time.Second), func() {
		s.w.on(s.host, func() {
			s.every(time.Second, func() bool {
				if s.dropped[i] != version {
					s.m.Cancel(i, version)
				}
				return s.m.Closed(i, version)
			})
		})
	})
}

// imported takes the record of a shard that its owner has closed.
func (s *simServer) imported(i int, epoch, version uint32, v value, from *simServer) {
	if s.m.Placement() == nil {
		return
	}
	if s.m.Imported(i, epoch, version) {
		s.imports[i] = v
		s.w.send(s.host, from.host, from.on(func() { from.release(i, epoch, version) }))
	}
}

// release makes the next owner the owner, until it is known.
func (s *simServer) release(i int, epoch, version uint32) {
	s.every(300*time.Millisecond, func() bool {
		next, ok := s.m.Release(Closing{i, epoch, version})
		if !ok {
			return false
		}
		if s.dropped[i] != version && !s.w.undropped {
			s.dropped[i] = version
			s.memory[i] = value{epoch: max(s.memory[i].epoch, epoch*drops) + 1}
		}
		read := s.m.Placement()
		s.w.transact(s.host, true, func() {
			if s.w.replace(read, next) {
				s.w.moves++
			}
			s.w.put(s.life)
		}, s.beaten(s.now()))
		return true
	})
}

// spread sends a new placement to all clients.
func (s *simServer) spread() {
	p := s.m.Placement()
	for c := range s.w.clients {
		if p != nil && s.told[c] != p.Epoch {
			s.told[c] = p.Epoch
			s.tellClient(c)
		}
	}
}

func (s *simServer) tellClient(c int) {
	p := s.m.Placement()
	if p == nil {
		return
	}
	g := s.grant()
	s.w.send(s.host, s.w.clients[c].host, func() { s.w.clients[c].heard(s, p, g, -1) })
}

// grant returns a grant for a client.
func (s *simServer) grant() simGrant { return simGrant{s.m.Deadline(), s.now()} }

// serves reports whether a call is executed, and returns the epoch of the shard's owner: what changes something while the
// shard is open, and what changes nothing also until its record is dropped for its next owner.
func (s *simServer) serves(i int, set bool) (epoch uint32, ok bool) {
	h := &s.m.shards[i]
	readOnly := h.state == closed && s.dropped[i] != h.version
	return h.epoch, (h.state == open || readOnly && (!set || s.w.unclosed)) && s.now() < s.m.Deadline()
}

// tell sends placement and grant now and then: messages are lost.
func (s *simServer) tell() {
	s.every(300*time.Millisecond, func() bool {
		for c := range s.w.clients {
			s.tellClient(c)
		}
		return true
	})
}

// call executes a client's call, and passes the outcome to done; ok is false if the call was refused.
func (s *simServer) call(i int, set bool, done func(v value, ok bool)) {
	if s.m.Placement() == nil {
		return
	}
	epoch, ok := s.serves(i, set)
	if !ok {
		done(value{}, false)
		return
	}
	execute := s.on(func() {
		if set {
			v := value{epoch * drops, 1, s.w.any(4) > 0}
			if e := s.memory[i].epoch; e/drops == epoch {
				v.epoch, v.seq = e, s.memory[i].seq+1
			}
			s.memory[i] = v
		}
		done(s.memory[i], true)
	})
	if s.w.rough && s.w.Now < quiet && s.w.oneIn(400) { // SIGSTOP between the check and the call
		d := min(s.w.upTo(2*ttl), quiet-s.w.Now)
		s.w.freeze(s.host, d)
		s.w.After(d, execute)
		return
	}
	execute()
}
