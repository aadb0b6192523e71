package session

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// table has a slot for each peer. Without a key a cookie shows only that an unauthenticated peer has its address,
// and one host could have all peers: the peers of each host are counted. Few hosts share a counter,
// by a keyed hash of their addresses.
type table struct {
	secret wire.Key // of cookies, and of the counters of hosts
	slots  map[wire.Addr]uint32
	free   []uint32
	counts [1024]uint32
	any    sweep  // for a peer of any host
	own    sweep  // for one of a certain host
	forgot uint64 // greetings from before may be replayed
}

// maxSlots is how many slots a token can name.
const maxSlots = 1 << 24

// Known returns how many peers there are.
func (s *Sessions) Known() int { return len(s.slots) }

// HostShare returns how many peers one host may have without a key.
func (s *Sessions) HostShare() int { return max(16, s.cfg.MaxPeers/16) }

func (s *Sessions) host(gid *[16]byte) uint16 {
	return uint16(wire.Hash(s.secret, gid[:]) % uint64(len(s.counts)))
}

// admits reports whether a host that greets may have another peer. An idle peer of a host that
// has its share makes room.
func (s *Sessions) admits(gid *[16]byte) bool {
	host := s.host(gid)
	if s.cfg.Key != nil || int(s.counts[host]) < s.HostShare() {
		return true
	}
	return s.evict(&s.own, func(p *Peer) bool { return p.host == host && s.idle(p) })
}

// slot takes a slot that is free, and returns false if none is. An idle peer makes room if there are
// MaxPeers.
func (s *Sessions) slot() (slot uint32, ok bool) {
	if len(s.free) == 0 && len(s.peers) == s.cfg.MaxPeers && !s.evict(&s.any, s.idle) {
		return 0, false
	}
	n := len(s.free)
	if n == 0 {
		return uint32(len(s.peers)), true
	}
	slot, s.free = s.free[n-1], s.free[:n-1]
	return slot, true
}

// idle reports whether a peer has nothing under way and was silent for EvictAge.
func (s *Sessions) idle(p *Peer) bool {
	return p.State != Vacant && !s.hooks.Unsettled(p) && s.Now-p.Heard.At > s.cfg.EvictAge
}

// evict forgets a peer, and returns false if it finds none.
func (s *Sessions) evict(w *sweep, idle func(*Peer) bool) bool {
	p := w.find(s.peers, s.Now, s.cfg.EvictAge, idle)
	if p != nil {
		s.Forget(p)
	}
	return p != nil
}

// sweep is the search for a peer to be forgotten. It looks at few peers each time, since many
// unauthenticated peers may come; at all of them now and then, since few may be silent for long.
type sweep struct {
	at   int
	next time.Duration // when all are looked at again
}

const (
	sweepFew   = 64
	sweepShare = 64 // of EvictAge, between two looks at all peers
)

// find returns the next peer that is idle, or nil.
func (w *sweep) find(peers []*Peer, now, evictAge time.Duration, idle func(*Peer) bool) *Peer {
	for looks := range peers {
		if looks == sweepFew {
			if now < w.next {
				break
			}
			w.next = now + evictAge/sweepShare
		}
		w.at = (w.at + 1) % len(peers)
		if p := peers[w.at]; idle(p) {
			return p
		}
	}
	return nil
}

// fresh reports whether a greeting that has the deployment's key is no replay of one that was
// forgotten.
func (s *Sessions) fresh(g *wire.Greeting) bool {
	return g.Stamp > s.forgot && g.Stamp < s.Wall()+uint64(time.Hour)
}

// Cookie returns what an unauthenticated peer has to show that it receives at its address. It holds for this
// period, a quarter of EvictAge, and the next one.
func (s *Sessions) Cookie(g *wire.Greeting) uint64 { return s.cookie(g, s.period()) }

// shows reports whether a greeting has its cookie.
func (s *Sessions) shows(g *wire.Greeting) bool {
	return g.Cookie == s.cookie(g, s.period()) || g.Cookie == s.cookie(g, s.period()-1)
}

func (s *Sessions) period() uint64 { return uint64(s.Now / (s.cfg.EvictAge / 4)) }

func (s *Sessions) cookie(g *wire.Greeting, period uint64) uint64 {
	var room [48]byte
	b := g.From.Append(room[:0])
	for _, v := range [...]uint64{g.Epoch, g.Token, period} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return wire.Hash(s.secret, b)
}
