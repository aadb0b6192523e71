package offload

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// message is a message that was handed in and is not settled.
type message struct {
	tag      uint64
	flow     *txFlow // nil: free
	total    uint32
	count    uint32 // packets that it has
	sent     uint32 // that were handed out
	seq      uint32 // its number, once it has one
	gen      uint32
	sentAt   time.Duration // when it was handed out whole
	fragment uint16        // bytes of each packet but the last
	reason   engine.Status // why it was given up, or 0
	numbered bool
	now      bool
	parts    bool
	unsure   bool // a packet of it may or may not have arrived
}

// txFlow is the message flow of a transport context: messages are numbered, and cut one
// after the other. While nothing is under way there is no more of it than this.
type txFlow struct {
	session.Queue // messages that are not handed out whole
	p             *peer
	service       uint8
	una, nxt      uint32 // the first number that is not settled, and the next one
	open          *txWindow
	again         []piece // to be sent before anything new
	told          uint32  // stamp of the response that said last which messages wait
	held          bool    // no message begins, since one waits for memory there
}

// txWindow has the states of the numbers from una on.
type txWindow [wire.Window]struct {
	message uint32
	state   uint8
}

// States of a number.
const (
	pending = iota // the receiver decides
	lacking        // so it will, when it has memory
	hole           // its message is settled, and the receiver is to pass it
	settled
)

// piece is a packet that is sent again, or one that cancels a message.
type piece struct {
	cancel       bool
	seq, index   uint32
	message, gen uint32
}

func (p *peer) unsettled() bool {
	for _, f := range p.tx {
		if f != nil && (f.Head != none || f.una != f.nxt) {
			return true
		}
	}
	return false
}

// Send hands in a message.
func (m *Machine) Send(to wire.Addr, msg engine.Message) (engine.Handle, error) {
	if msg.Service >= wire.Services {
		return 0, engine.ErrService
	}
	p := m.find(to)
	switch {
	case p == nil:
		return 0, engine.ErrPeers
	case uint64(msg.Len) > uint64(p.Limits.Message):
		return 0, engine.TooLargeError{Limit: p.Limits.Message}
	}
	if !p.unsettled() {
		if m.Now-p.Progress > session.SenderAge/2 { // the peer may have shared its budget among others
			p.grant = min(p.grant, uint16(m.cfg.First))
		}
		p.Progress = m.Now
		if p.State == session.Established && m.Forgets(&p.Peer) {
			m.Greet(&p.Peer)
		}
		m.Wake(&p.Peer, m.Now+m.cfg.PeerTimeout/32)
	}
	f := p.tx[msg.Service]
	if f == nil {
		f = &txFlow{p: p, service: msg.Service, Queue: session.EmptyQueue}
		p.tx[msg.Service] = f
	}
	i := m.links.New()
	if uint64(i) == uint64(len(m.messages)) {
		m.messages = append(m.messages, message{})
	}
	g := &m.messages[i]
	*g = message{tag: msg.Tag, flow: f, total: uint32(msg.Len), count: wire.Count(uint32(msg.Len), p.Fragment), gen: g.gen + 1,
		fragment: p.Fragment, now: msg.Now, parts: msg.Parts}
	m.links.Push(&f.Queue, i)
	if p.State == session.Known {
		m.Greet(&p.Peer)
	}
	m.Enqueue(&p.Peer)
	return engine.Handle(uint64(g.gen)<<32 | uint64(i)), nil
}

// limit cuts messages to a peer according to its limits. None of them has begun in this session.
func (m *Machine) limit(p *peer) {
	p.Fragment = uint16(min(m.fragment, int(p.Limits.MTU)-wire.Overhead))
	for _, f := range p.tx {
		if f == nil {
			continue
		}
		for i := f.Head; i != none; {
			g := &m.messages[i]
			next := m.links.Next(i)
			switch {
			case g.numbered:
			case g.total > p.Limits.Message:
				m.abort(i, engine.TooLarge)
			default:
				g.fragment, g.count = p.Fragment, wire.Count(g.total, p.Fragment)
			}
			i = next
		}
	}
}

// live returns a message, or nil if it was settled meanwhile.
func (m *Machine) live(i, gen uint32) *message {
	if uint64(i) < uint64(len(m.messages)) && m.messages[i].flow != nil && m.messages[i].gen == gen {
		return &m.messages[i]
	}
	return nil
}

// Cancel gives a message up, unless it is settled. Its status shows whether that came
// in time.
func (m *Machine) Cancel(h engine.Handle) {
	if g := m.live(uint32(h), uint32(h>>32)); g != nil {
		m.abort(uint32(h), engine.Cancelled)
	}
}

// abort gives a message up. Once a packet of it was handed out, the receiver says
// whether that came in time.
func (m *Machine) abort(i uint32, why engine.Status) {
	g := &m.messages[i]
	if g.reason != 0 {
		return
	}
	f := g.flow
	m.links.Remove(&f.Queue, i)
	if !g.numbered {
		m.finish(i, why)
		return
	}
	g.reason = why
	m.cancel(f, g.seq)
}

// miss settles a message when a packet of it has not arrived, and never will: the receiver
// cannot have it.
func (m *Machine) miss(i uint32, why engine.Status) {
	g := &m.messages[i]
	f := g.flow
	f.open[g.seq%wire.Window].state = hole
	m.links.Remove(&f.Queue, i)
	m.cancel(f, g.seq)
	m.finish(i, why)
}

// cancel has the receiver told that a message is given up.
func (m *Machine) cancel(f *txFlow, seq uint32) {
	f.again = append(f.again, piece{cancel: true, seq: seq})
	m.Enqueue(&f.p.Peer)
}

// finish reports the status of a message, and forgets it.
func (m *Machine) finish(i uint32, s engine.Status) {
	g := &m.messages[i]
	r := &m.result
	*r = engine.Result{Tag: g.tag, Status: s, Parts: int(g.sent), Limit: g.flow.p.Limits.Message, Unauthenticated: g.flow.p.Epoch == 0}
	switch s {
	case engine.Delivered: // by packets of before it was sent again
		r.Parts = int(g.count)
	case engine.Refused:
		r.Refused = r.Parts
	}
	if g.parts {
		for part := range r.Parts {
			m.cfg.Host.PartSettled(g.tag, part, s)
		}
	}
	g.flow = nil
	m.links.Free(i)
	m.cfg.Host.Settled(r)
}

// onCredit records how many packets the peer took.
func (m *Machine) onCredit(p *peer, c *wire.Credit) {
	if int32(c.Taken-p.taken) < 0 {
		return // of before
	}
	if c.Taken != p.taken {
		p.checks = 0
	}
	p.taken, p.grant = c.Taken, c.Grant
	if int32(p.taken-p.posted) > 0 { // a packet that counted as lost had arrived after all
		p.posted = p.taken
	}
	p.Progress = m.Now
	m.Enqueue(&p.Peer)
}

// onResponse handles the receiver's results for messages of a flow. An older response than one
// that came before says nothing new; one that has messages wait may be over.
func (m *Machine) onResponse(p *peer, r *wire.Response, stamp uint32) {
	f := p.tx[r.Service]
	if f == nil || f.open == nil {
		return
	}
	if int32(r.Base-f.nxt) > 0 || int32(r.Floor-f.una) > 0 {
		m.Stats.Bogus++
		return
	}
	for s := f.una; s != f.nxt; s++ {
		c := &f.open[s%wire.Window]
		if c.state == settled || !decided(r, s) {
			continue
		}
		was := c.state
		c.state, p.checks = settled, 0
		if was == hole {
			continue
		}
		g := &m.messages[c.message]
		status := engine.Delivered
		switch at := s - r.Floor; {
		case !bit(r.Refused[:r.NRefused], at):
		case g.reason != 0:
			status = g.reason
		default:
			status = engine.Refused
		}
		m.links.Remove(&f.Queue, c.message)
		m.finish(c.message, status)
	}
	for f.una != f.nxt && f.open[f.una%wire.Window].state == settled {
		f.una++
	}
	if old := f.told-stamp-1 < 1<<20; !old || r.Pressure != engine.NoMemory { // by less than a second
		f.told = stamp
		m.holdBack(f, r)
	}
	if f.una == f.nxt {
		m.close(f)
	}
	p.Progress = m.Now
	m.Enqueue(&p.Peer)
}

// holdBack holds the messages back that wait for memory, as r says; or has them sent again, if r says
// so or is nil. Others have to come again, too, if their packets landed and they are undecided for
// long: what says so did not arrive.
func (m *Machine) holdBack(f *txFlow, r *wire.Response) {
	waits := r != nil && r.Pressure == engine.NoMemory
	f.held = false
	for s := f.nxt; s != f.una; {
		s--
		c := &f.open[s%wire.Window]
		if c.state > lacking {
			continue
		}
		i, g := c.message, &m.messages[c.message]
		lacks := r != nil && bit(r.Refused[:r.NRefused], s-r.Floor) ||
			r == nil && g.sent == g.count && f.p.tries == 0 && m.Now-g.sentAt > m.cfg.PeerTimeout/8
		switch {
		case lacks && f.service == engine.NoRetransmit:
			m.abort(i, engine.Retransmit)
		case !lacks && c.state == pending:
		case waits:
			if c.state == pending {
				m.links.Remove(&f.Queue, i)
			}
			c.state, f.held = lacking, true
		case g.reason == 0:
			m.links.Remove(&f.Queue, i)
			m.Stats.Retransmitted += uint64(g.sent)
			c.state, g.sent, g.unsure = pending, 0, true // of each packet there may be two
			m.links.PushFront(&f.Queue, i)
		}
	}
}

// decided reports whether the receiver has taken or refused a message.
func decided(r *wire.Response, seq uint32) bool {
	return int32(seq-r.Base) < 0 || bit(r.Seen[:r.NSeen], seq-r.Base)
}

func bit(words []uint64, i uint32) bool {
	return uint64(i) < 64*uint64(len(words)) && words[i/64]>>(i%64)&1 != 0
}

// close releases the window of an idle flow.
func (m *Machine) close(f *txFlow) {
	if f.open != nil {
		m.windows, f.open = append(m.windows, f.open), nil
	}
	f.again, f.held = f.again[:0], false
}
