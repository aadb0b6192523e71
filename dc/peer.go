package dc

import (
	"context"
	"hash/maphash"
	"slices"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Peer is a target as an initiator knows it: an address and an access key, which
// do not change. One that was never used costs some 120 bytes and no queue
// pair.
type Peer struct {
	i    *Initiator
	addr Address
	key  uint64
	gone bool
	next *Peer // with the same hash
	a    *activity
}

// activity is the state of a peer that was used.
type activity struct {
	queue   []entry // not yet posted
	posted  uint64
	ended   uint64
	failed  uint64
	flushes []*flush
	full    bool // a request was refused
	timed   bool // some requests have a timeout

	// What the back end keeps of it, or nil.
	soft *session.Peer
	hard *hardPeer
}

// active returns the state of the peer, which is made if there is none.
func (p *Peer) active() *activity {
	if p.a == nil {
		p.a = &activity{}
	}
	return p.a
}

// flush is a call of Flush.
type flush struct {
	mark   uint64 // the last request that is waited for
	left   uint64 // how many of them have not ended
	waiter verbs.Waiter
}

// Address returns the address that was resolved.
func (p *Peer) Address() Address { return p.addr }

// name returns the address for errors, also of calls without a peer.
func (p *Peer) name() string {
	if p == nil {
		return "no peer"
	}
	return p.addr.String()
}

// keyed reports whether the access key is the one that the address was made for, as
// far as that is known.
func (p *Peer) keyed() bool {
	return p.addr.KeyCheck == 0 || p.addr.KeyCheck == wire.KeyCheckOf(p.key)
}

// mine returns an error for a peer of another initiator, for one that is known no more, and
// if the initiator is closed or lost. mu must be held.
func (i *Initiator) mine(p *Peer) error {
	if p != nil && p.i == i && !p.gone && i.open() {
		return nil
	}
	return i.notMine(p)
}

func (i *Initiator) notMine(p *Peer) error {
	switch err := i.usable(); {
	case err != nil:
		return err
	case p == nil || p.i != i:
		return errNotMine
	}
	return ErrClosed
}

func (i *Initiator) hash(a Address, key uint64) uint64 {
	return maphash.Comparable(i.seed, struct {
		Address
		key uint64
	}{a, key})
}

// Resolve makes a target known. It sends nothing: the target is connected to
// when there is something for it. For the same address and key it returns the same peer.
func (i *Initiator) Resolve(a Address, accessKey uint64) (*Peer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.usable(); err != nil {
		return nil, opError("resolve", a.String(), err)
	}
	hash := i.hash(a, accessKey)
	for p := i.peers[hash]; p != nil; p = p.next {
		if p.addr == a && p.key == accessKey {
			return p, nil
		}
	}
	p := &Peer{i: i, addr: a, key: accessKey, next: i.peers[hash]}
	if err := i.be.resolve(p); err != nil {
		return nil, opError("resolve", a.String(), err)
	}
	i.peers[hash] = p
	return p, nil
}

// Attach opens a session with a target, if there is none, before there are
// requests for it. It returns when the first request can go out at once; a session
// without requests makes room for other targets as soon as any waits for a context.
// With hardware it finds the way to the target only.
func (i *Initiator) Attach(ctx context.Context, p *Peer) error {
	if err := ctx.Err(); err != nil {
		return opError("attach to", p.name(), err)
	}
	return opError("attach to", p.name(), i.be.attach(ctx, p))
}

// Detach leaves a target that has no requests outstanding, or else refuses with
// [ErrInUse]. The session is kept for the next time, for which the queue pair is made
// ready, or else closed ([InitiatorConfig.CloseSessions]). It returns at once; a target
// with a closed session is told until it replies. Detaching from a target without a
// session is not an error.
func (i *Initiator) Detach(p *Peer) error { return i.leave("detach from", p, false) }

// Forget gives up what the initiator keeps of a target, and closes its session
// if there is one. It is refused with [ErrInUse] while requests of the peer are
// under way. The peer must not be used again: calls refuse it with [ErrClosed].
// The same address can be resolved anew.
func (i *Initiator) Forget(p *Peer) error { return i.leave("forget", p, true) }

func (i *Initiator) leave(op string, p *Peer, forever bool) error {
	i.mu.Lock()
	err := i.mine(p)
	if err == nil {
		err = i.be.leave(p, forever)
	}
	if err == nil && forever {
		i.unlink(p)
	}
	i.unlock()
	return opError(op, p.name(), err)
}

func (i *Initiator) unlink(p *Peer) {
	p.gone = true
	hash := i.hash(p.addr, p.key)
	if i.peers[hash] == p {
		i.peers[hash] = p.next
	}
	for q := i.peers[hash]; q != nil; q = q.next {
		if q.next == p {
			q.next = p.next
		}
	}
	if i.peers[hash] == nil {
		delete(i.peers, hash)
	}
	i.timed = slices.DeleteFunc(i.timed, func(q *Peer) bool { return q == p })
}

// Stats returns the counters of one target so far.
func (p *Peer) Stats() PeerStats {
	i := p.i
	i.mu.Lock()
	defer i.mu.Unlock()
	var s PeerStats
	if a := p.a; a != nil && !p.gone {
		s = PeerStats{Posted: a.posted, Ended: a.ended, Failed: a.failed, Queued: len(a.queue)}
		i.be.peerStats(p, &s)
	}
	return s
}
