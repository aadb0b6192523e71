package dc

import (
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Forget gives up what the initiator keeps of a target, and closes its session
// if there is one. It is refused with [verbs.ErrInUse] while requests of the
// peer are under way. The peer must not be used again: Post refuses it with
// [ErrClosed]. The same address can be resolved anew.
func (i *Initiator) Forget(p *Peer) error {
	if i.hw != nil {
		return i.hw.forget(p)
	}
	i.mu.Lock()
	if i.closed || p.gone || i.peers[p.number] != p {
		i.mu.Unlock()
		return opError("forget", p.addr.String(), ErrClosed)
	}
	if err := i.core.forget(&p.peerState, i.now()); err != nil {
		i.mu.Unlock()
		return opError("forget", p.addr.String(), err)
	}
	i.peers[p.number] = nil
	delete(i.byAddr, p.addr)
	i.perform()
	return nil
}

// forget parts with a target that has no requests.
func (c *initiatorCore) forget(p *peerState, now time.Duration) error {
	under := p.pending
	if p.ctx != nil {
		under += p.ctx.outstanding
	}
	if under > 0 || p.ctx != nil && p.ctx.state != ctxAttached {
		return fmt.Errorf("%w: %d requests are under way", verbs.ErrInUse, under)
	}
	if x := p.ctx; x != nil {
		c.detach(x, now)
	}
	p.gone = true
	c.peers[p.number] = nil
	c.spare = append(c.spare, p.number)
	return nil
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
		c.goodbyes = slices.DeleteFunc(c.goodbyes, func(f farewell) bool { return f.m.session == m.session && f.to == m.from })
	}
}
