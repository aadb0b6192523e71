package dc

import (
	"hash/maphash"
	"slices"
	"time"
)

// Forget gives up what the initiator keeps of a target, and closes its session
// if there is one. It is refused with [ErrInUse] while requests of the peer are
// under way. The peer must not be used again: calls refuse it with [ErrClosed].
// The same address can be resolved anew.
func (i *Initiator) Forget(p *Peer) error {
	if i.hw != nil {
		return i.hw.forget(p)
	}
	i.mu.Lock()
	if i.closed || !i.core.knows(p) {
		i.mu.Unlock()
		return opError("forget", p.addr.String(), ErrClosed)
	}
	if !i.core.remove(p, i.now()) {
		i.mu.Unlock()
		return opError("forget", p.addr.String(), ErrInUse)
	}
	hash := maphash.Comparable(i.seed, p.addr)
	if i.byAddr[hash] == p {
		i.byAddr[hash] = p.next
	}
	for q := i.byAddr[hash]; q != nil; q = q.next {
		if q.next == p {
			q.next = p.next
		}
	}
	if i.byAddr[hash] == nil {
		delete(i.byAddr, hash)
	}
	i.perform()
	return nil
}

// knows tells whether a peer is one of this initiator's, and not forgotten.
func (c *initiatorCore) knows(p *Peer) bool {
	return int(p.number) < len(c.peers) && c.peers[p.number] == p
}

// remove parts with a target that has no requests, or answers false.
func (c *initiatorCore) remove(p *Peer, now time.Duration) bool {
	if !c.dismiss(p, now) {
		return false
	}
	c.peers[p.number] = nil
	c.spare = append(c.spare, p.number)
	return true
}

// peerNumber is a number for a new target, and has a place for it: one that was
// forgotten, unless a goodbye to its last owner is still under way.
func (c *initiatorCore) peerNumber() uint32 {
	for i, n := range c.spare {
		if !slices.ContainsFunc(c.goodbyes, func(f farewell) bool { return f.m.peer == n }) {
			c.spare = slices.Delete(c.spare, i, i+1)
			return n
		}
	}
	c.peers = append(c.peers, nil)
	return uint32(len(c.peers) - 1)
}

// forgotten takes a message from a target that is no longer known: at most a
// session to be closed.
func (c *initiatorCore) forgotten(m *message) {
	c.stats.Stale++
	switch m.kind {
	case msgAttached:
		c.send(m.from, message{kind: msgDetach, epoch: m.epoch, session: m.session, context: m.context, attempt: m.attempt, peer: m.peer})
	case msgDetached:
		c.goodbyes = slices.DeleteFunc(c.goodbyes, func(f farewell) bool { return f.m.session == m.session && f.m.peer == m.peer })
	}
}
