package engine

import (
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// message is a message that was handed in and is not settled.
type message struct {
	tag      uint64
	flow     *txFlow // nil: free
	total    uint32
	first    uint32 // number of its first packet
	count    uint32 // packets that it has; cut when it is given up
	sent     uint32 // that have a number
	settled  uint32
	refused  uint32
	blame    uint32 // the first part in the way
	gen      uint32
	fragment uint16
	reason   Status // why it was given up, or 0
	now      bool
	parts    bool
	asked    bool // a cancel was sent: what comes behind it is refused
}

// txFlow is the packet flow of a transport context: messages go one after the other,
// each as packets with consecutive numbers. While nothing is under way there is no
// more of it than this.
type txFlow struct {
	session.Queue // messages that have packets without a number
	p             *peer
	service       uint8
	una, nxt      uint32 // the first packet that is not settled, and the next one
	live          *inflight
}

func (f *txFlow) busy() bool { return f.Head != none || f.live != nil }

// unsettled reports whether a message to a peer is not settled.
func (e *Engine) unsettled(p *peer) bool {
	if p.flying > 0 {
		return true
	}
	for _, f := range &p.tx {
		if f != nil && f.busy() {
			return true
		}
	}
	return false
}

// Handle names a message until it is settled.
type Handle uint64

// Send hands in a message.
func (e *Engine) Send(to wire.Addr, m Message) (Handle, error) {
	if m.Service >= wire.Services {
		return 0, ErrService
	}
	p := e.find(to)
	switch {
	case p == nil:
		return 0, ErrPeers
	case uint64(m.Len) > uint64(p.Limits.Message):
		return 0, TooLargeError{Limit: p.Limits.Message}
	}
	if !e.unsettled(p) {
		p.Progress = e.Now
		if p.State == session.Established && e.Forgets(&p.Peer) {
			e.Greet(&p.Peer)
		}
		if p.net != nil && e.Now-p.net.used > session.SenderAge/2 { // others may have its share by now
			p.grant = min(p.grant, uint16(e.cfg.First))
		}
	}
	f := p.tx[m.Service]
	if f == nil {
		f = &txFlow{p: p, service: m.Service, Queue: session.EmptyQueue}
		p.tx[m.Service] = f
	}
	i := e.links.New()
	if uint64(i) == uint64(len(e.messages)) {
		e.messages = append(e.messages, message{})
	}
	g := &e.messages[i]
	*g = message{
		tag: m.Tag, flow: f, total: uint32(m.Len), count: wire.Count(uint32(m.Len), p.Fragment), gen: g.gen + 1,
		fragment: p.Fragment, now: m.Now, parts: m.Parts,
	}
	e.links.Push(&f.Queue, i)
	if p.State == session.Known {
		e.Greet(&p.Peer)
	}
	e.Enqueue(&p.Peer)
	e.Wake(&p.Peer, p.Progress+e.cfg.PeerTimeout)
	return Handle(uint64(g.gen)<<32 | uint64(i)), nil
}

// Cancel gives a message up, unless it is settled. Its status shows whether that came
// in time.
func (e *Engine) Cancel(h Handle) {
	i := uint32(h)
	if uint64(i) < uint64(len(e.messages)) && e.messages[i].flow != nil && e.messages[i].gen == uint32(h>>32) {
		e.abort(i, Cancelled)
	}
}

// abort gives a message up. The receiver has to learn which packets never come: packets under
// way are replaced by cancels when they are lost, and one more ends a message that is not
// sent completely.
func (e *Engine) abort(i uint32, why Status) {
	m := &e.messages[i]
	f := m.flow
	if m.reason != 0 {
		return
	}
	m.reason = why
	if m.sent == 0 {
		m.blame = 0
		e.links.Remove(&f.Queue, i)
		e.finish(i)
		return
	}
	if f.live != nil {
		for s := m.first; s != m.first+m.sent; s++ {
			if k := f.live.at(s); f.live.has(f, s) && k.state != settled {
				k.cancel = true
			}
		}
	}
	if m.sent < m.count {
		m.count = m.sent + 1
		e.Enqueue(&f.p.Peer)
	}
}

// finish reports the status of a message, and forgets it.
func (e *Engine) finish(i uint32) {
	m := &e.messages[i]
	r := &e.result
	*r = Result{Tag: m.tag, Status: Delivered, Parts: int(m.sent), Refused: int(m.refused)}
	if m.reason != 0 && (m.refused > 0 || m.sent < m.count || m.reason == Unresponsive) {
		r.Status, r.Part = m.reason, int(m.blame)
	}
	f := m.flow
	r.Limit, r.Unauthenticated = f.p.Limits.Message, f.p.Epoch == 0
	m.flow = nil
	e.links.Free(i)
	e.cfg.Host.Settled(r)
	e.settle(f)
}

// settle releases the ring of an idle flow.
func (e *Engine) settle(f *txFlow) {
	if f.live != nil && f.una == f.nxt {
		e.releaseFlow(f)
	}
}

// number gives the next packet of a flow its number seq, and returns it and its message i.
func (e *Engine) number(f *txFlow) (i, seq uint32) {
	i = f.Head
	m := &e.messages[i]
	seq = f.nxt
	f.nxt++
	if m.sent == 0 {
		m.first = seq
	}
	m.sent++
	if m.sent == m.count {
		e.links.Pop(&f.Queue)
	}
	return i, seq
}

// packetSettled records that a packet arrived, or was refused.
func (e *Engine) packetSettled(f *txFlow, seq uint32, refused bool) {
	l := f.live
	k := l.at(seq)
	if k.state == flying {
		l.remove(&l.subs[k.path].list, seq)
		e.landed(f.p, k.path)
	} else {
		l.remove(&l.lost, seq)
	}
	k.state = settled
	i := k.message
	m := &e.messages[i]
	if k.long {
		f.p.longs--
		if !k.cancel {
			f.p.large, f.p.small = e.Now, 0
		}
	}
	m.settled++
	status := Delivered
	if refused {
		status = Refused
		switch {
		case !k.cancel && m.total > f.p.Limits.Message:
			status = TooLarge
		case k.cancel && m.reason != 0:
			status = m.reason
		case (k.cancel || m.asked) && f.service == NoRetransmit:
			status = Retransmit
		}
		if m.refused == 0 || seq-m.first < m.blame {
			m.blame = seq - m.first
		}
		m.refused++
		e.abort(i, status)
	}
	if m.parts {
		e.cfg.Host.PartSettled(m.tag, int(seq-m.first), status)
	}
	for f.una != f.nxt && l.at(f.una).state == settled {
		f.una++
	}
	if m.settled == m.count {
		e.finish(i)
	}
}

// fail gives up the messages that were sent to a peer; with all set, also the others.
func (e *Engine) fail(p *peer, all bool) {
	p.longs = 0
	for _, f := range &p.tx {
		if f == nil {
			continue
		}
		if l := f.live; l != nil {
			for s := f.una; s != f.nxt; s++ {
				k := l.at(s)
				if k.state == settled {
					continue
				}
				if k.state == flying {
					e.landed(p, k.path)
				}
				if m := &e.messages[k.message]; m.parts {
					e.cfg.Host.PartSettled(m.tag, int(s-m.first), Unresponsive)
				}
			}
			pending := l
			f.live = nil // finish releases nothing
			for s := f.una; s != f.nxt; s++ {
				if k := pending.at(s); k.state != settled {
					e.unresponsive(f, k.message)
				}
			}
			f.una = f.nxt
			f.live = pending
			e.releaseFlow(f)
		}
		for f.Head != none && (all || e.messages[f.Head].sent > 0) {
			e.unresponsive(f, f.Head)
		}
	}
	if all && p.State == session.Greeting {
		p.State = session.Known
	}
}

func (e *Engine) unresponsive(f *txFlow, i uint32) {
	m := &e.messages[i]
	if m.flow == nil { // told already
		return
	}
	if f.Head == i {
		e.links.Pop(&f.Queue)
	}
	if m.reason == 0 || m.settled < m.sent {
		m.blame = m.settled
	}
	m.reason = Unresponsive
	e.finish(i)
}
