package dc

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Peer is a target as an initiator knows it. An idle one costs some 200 bytes
// and no queue pair.
type Peer struct {
	addr   Address
	key    uint64
	number uint32
	qpn    uint32 // of the control queue pair, where that was last seen
	qkey   uint32
	epoch  uint64
	next   *Peer // whose address has the same hash
	ctx    *initiatorContext
	parked session

	pending   int32 // requests not yet posted
	wanted    bool  // a session is asked for, whether there are requests or not
	queued    bool
	asking    bool          // the service is asked where the target is
	lined     time.Duration // when it began to wait
	notBefore time.Duration // after a busy answer
	firstTry  time.Duration // of the connects under way; 0: none
	queue     []Request     // not yet posted
}

func newPeer(number uint32, a Address, key uint64) *Peer {
	return &Peer{addr: a, key: key, number: number, qpn: a.QPN, qkey: a.QKey, epoch: a.Incarnation}
}

// Address is what was resolved.
func (p *Peer) Address() Address { return p.addr }

func (p *Peer) place() place {
	return place{gid: p.addr.GID, qpn: p.qpn, qkey: p.qkey, lid: p.addr.LID}
}

// check refuses what no queue pair would take.
func (p *Peer) check(c *InitiatorConfig, rs []Request) error {
	for k := range rs {
		if rs[k].Op > CmpSwap || rs[k].Flags&verbs.Inline != 0 {
			if err := rs[k].check(c); err != nil {
				return opError("post to", p.addr.String(), err)
			}
		}
	}
	return nil
}

// Resolve makes a target known. It sends nothing: the target is connected to
// when there is something for it. The same address answers the same peer.
func (i *Initiator) Resolve(a Address, accessKey uint64) (*Peer, error) {
	if i.hw != nil {
		return i.hw.resolve(a, accessKey)
	}
	if a.Hardware {
		return nil, opError("resolve", a.String(), errors.Join(verbs.ErrUnsupported, errors.New("a DCT needs an initiator of the hardware back end")))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, opError("resolve", a.String(), ErrClosed)
	}
	hash := maphash.Comparable(i.seed, a)
	for p := i.byAddr[hash]; p != nil; p = p.next {
		if p.addr == a && p.key == accessKey {
			return p, nil
		}
	}
	p := newPeer(i.core.peerNumber(), a, accessKey)
	p.next = i.byAddr[hash]
	i.core.peers[p.number] = p
	i.byAddr[hash] = p
	return p, nil
}

// Attach opens a session with a target, if there is none, before there are
// requests for it. It returns when the first request can go out at once; the
// session may have to make room for another target soon after. With hardware it
// finds the way to the target only.
func (i *Initiator) Attach(ctx context.Context, p *Peer) error {
	if i.hw != nil {
		return i.hw.attach(p)
	}
	i.mu.Lock()
	if i.closed || !i.core.knows(p) {
		i.mu.Unlock()
		return opError("attach to", p.addr.String(), ErrClosed)
	}
	if i.core.admit(p) != nil {
		i.mu.Unlock()
		return nil
	}
	done := make(chan error, 1)
	i.joins[p] = append(i.joins[p], done)
	i.core.enqueue(p, 0, i.now())
	i.perform()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return opError("attach to", p.addr.String(), ctx.Err())
	}
}

// attached tells those who wait in Attach. It is called with mu held.
func (i *Initiator) attached(p *Peer, err error) {
	for _, done := range i.joins[p] {
		done <- err
	}
	delete(i.joins, p)
}

// Detach closes the session with a target that has no requests outstanding, or
// else refuses with [ErrInUse]. It returns at once; the target is told until it
// answers. Closing a session that is not there is not an error.
func (i *Initiator) Detach(p *Peer) error {
	if i.hw != nil {
		return i.hw.idle(p)
	}
	i.mu.Lock()
	if i.closed || !i.core.knows(p) {
		i.mu.Unlock()
		return opError("detach from", p.addr.String(), ErrClosed)
	}
	if !i.core.dismiss(p, i.now()) {
		i.mu.Unlock()
		return opError("detach from", p.addr.String(), ErrInUse)
	}
	i.perform()
	return nil
}
