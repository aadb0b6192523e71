package engine

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
)

// model is what users of the engines know, and may rely on.
type model struct {
	w         *world
	sent      []*letter
	open      int // not settled, of senders that live
	last      map[[5]int]int
	results   [10]int
	onSettled func(l *letter)
	patient   bool // no peer is silent, restarts or is forgotten: none may be unresponsive
}

// letter is a message and its fate.
type letter struct {
	tag             int
	from, to        int
	life            int // of the sender
	peerLife        int // of the receiver when it was delivered
	service         uint8
	size            int
	sentAt, settle  time.Duration
	arrived         time.Duration
	body            []byte
	handle          Handle
	count           int // deliveries
	status          Status
	void            bool // its sender is gone
	givenUp         bool // its bytes are the sender's again
	parts           map[int]Status
	receiverAtFirst int
}

const shortest = 8

// post sends a message.
func (m *model) post(n *node, to int, service uint8, size int) *letter {
	l := &letter{tag: len(m.sent), from: n.id, to: to, life: n.life, service: service, size: max(size, shortest), sentAt: m.w.now}
	l.receiverAtFirst = m.w.nodes[to].life
	m.sent = append(m.sent, l)
	msg := Message{Tag: uint64(l.tag), Service: service, Len: l.size, Now: m.w.rng.IntN(2) == 0, Parts: m.w.rng.IntN(3) == 0}
	if msg.Parts {
		l.parts = make(map[int]Status)
	}
	n.e.Advance(n.raw())
	h, err := n.e.Send(addrOf(to), msg)
	if err != nil {
		l.status, l.void = Cancelled, true
		return l
	}
	l.handle = h
	m.open++
	return l
}

// bytes are a message's: its tag, and what follows from it.
func (m *model) bytes(tag uint64) []byte {
	l := m.sent[tag]
	if l.body == nil {
		l.body = make([]byte, l.size)
		for i := range l.body {
			l.body[i] = byte(i*7 + i>>8 + l.tag)
		}
		binary.BigEndian.PutUint64(l.body, tag)
	}
	return l.body
}

// clocksDiffer reports whether a message came to another incarnation of its receiver than before, with a
// key, while its sender's clock was ahead by more than a restart takes, which is no time here: the
// package does not promise that it comes once then.
func (m *model) clocksDiffer(l *letter, n *node) bool {
	sender := m.w.nodes[l.from]
	return m.w.cfg.Key != nil && l.peerLife != n.life && sender.life == l.life && sender.e.Wall() > m.w.wall+uint64(m.w.now)
}

func (m *model) delivered(n *node, d *Delivery) {
	t := m.w.t
	if len(d.Bytes) < shortest {
		t.Fatalf("node %d: %d bytes delivered that nobody sent", n.id, len(d.Bytes))
	}
	tag := binary.BigEndian.Uint64(d.Bytes)
	if tag >= uint64(len(m.sent)) {
		t.Fatalf("node %d: a message that nobody sent", n.id)
	}
	l := m.sent[tag]
	switch {
	case l.to != n.id || addrOf(l.from) != d.From || l.service != d.Service:
		t.Fatalf("message %d came to another place than it was sent to", tag)
	case !bytes.Equal(d.Bytes, m.bytes(tag)):
		t.Fatalf("message %d of %d bytes came changed", tag, l.size)
	case l.status == Refused || l.status == Retransmit || l.status == TooLarge || l.status == PathMTU || l.status == Cancelled && !l.void:
		t.Fatalf("message %d was delivered after its status, %d", tag, l.status)
	case l.count > 0 && !m.clocksDiffer(l, n):
		t.Fatalf("message %d was delivered twice", tag)
	}
	l.count++
	l.peerLife = n.life
	l.arrived = m.w.now
	if l.service == Ordered {
		if m.last == nil {
			m.last = make(map[[5]int]int)
		}
		k := [5]int{l.from, l.life, l.to, n.life}
		if last, ok := m.last[k]; ok && last > l.tag {
			t.Fatalf("message %d was delivered after %d, which was sent later", tag, last)
		}
		m.last[k] = l.tag
	}
}

func (m *model) settled(n *node, r *Result) {
	t := m.w.t
	l := m.sent[r.Tag]
	switch {
	case l.status != 0 && !l.void:
		t.Fatalf("message %d has a second status, %d after %d", r.Tag, r.Status, l.status)
	case l.void || l.from != n.id || l.life != n.life:
		t.Fatalf("message %d is settled by another than its sender", r.Tag)
	}
	l.status, l.settle = r.Status, m.w.now
	m.open--
	m.results[r.Status]++
	if m.onSettled != nil {
		defer m.onSettled(l)
	}
	switch r.Status {
	case Unresponsive:
		if m.patient {
			l.body = nil
			t.Fatalf("message %d: the peer is said to be unresponsive, and is not: %+v, now %v", r.Tag, *l, m.w.now)
		}
	case Delivered:
		if l.count == 0 && l.service != Ordered && l.receiverAtFirst == m.w.nodes[l.to].life {
			t.Fatalf("message %d is said to be delivered, and was not", r.Tag)
		}
		for i, s := range l.parts {
			if s != Delivered {
				t.Fatalf("message %d was delivered, but its part %d has status %d", r.Tag, i, s)
			}
		}
		if l.parts != nil && len(l.parts) != r.Parts {
			t.Fatalf("message %d of %d parts has reports of %d", r.Tag, r.Parts, len(l.parts))
		}
	case Refused, Retransmit, Cancelled, TooLarge, PathMTU:
		if r.Status == TooLarge && l.size <= m.w.cfg.MaxMessage || r.Status == PathMTU && !m.w.short {
			t.Fatalf("message %d of %d bytes has status %d", r.Tag, l.size, r.Status)
		}
		if l.count > 0 {
			l.body = nil
			t.Fatalf("message %d has status %d, and was delivered: %+v %+v", r.Tag, r.Status, *r, *l)
		}
		if r.Status == Retransmit && l.service != NoRetransmit {
			t.Fatalf("message %d of service %d is to be sent again by the application", r.Tag, l.service)
		}
		if l.parts != nil && r.Parts > 0 {
			if s := l.parts[r.Part]; s == Delivered || s == 0 {
				t.Fatalf("message %d: part %d is said to be in the way, and has status %d", r.Tag, r.Part, s)
			}
		}
	}
}

func (m *model) partSettled(n *node, tag uint64, part int, s Status) {
	l := m.sent[tag]
	if l.parts == nil {
		m.w.t.Fatalf("message %d: nobody asked for its parts", tag)
	}
	if l.parts[part] != 0 {
		m.w.t.Fatalf("message %d: part %d has a second status", tag, part)
	}
	l.parts[part] = s
}

// crash ends a node's life, and begins the next one.
func (m *model) crash(n *node, wallBack uint64) {
	for _, l := range m.sent {
		if l.from == n.id && l.life == n.life && l.status == 0 {
			l.void = true
			m.open--
		}
	}
	n.later = nil
	n.start(wallBack)
}

// end is when all is quiet: every message has its status, all memory is back.
func (m *model) end() {
	t := m.w.t
	if m.open != 0 {
		for _, l := range m.sent {
			if l.status == 0 && !l.void {
				t.Errorf("message %d of service %d, %d bytes, from %d to %d has no status", l.tag, l.service, l.size, l.from, l.to)
				break
			}
		}
		t.Fatalf("%d messages have no status", m.open)
	}
	for _, l := range m.sent {
		if l.status == Delivered && !l.void && l.count == 0 && l.receiverAtFirst == m.w.nodes[l.to].life {
			t.Fatalf("message %d of service %d was said to be delivered, and never was", l.tag, l.service)
		}
	}
	for _, n := range m.w.nodes {
		if n.used != 0 {
			t.Fatalf("node %d keeps %d bytes of messages that never came", n.id, n.used)
		}
		n.check()
	}
}

// check looks at what an engine keeps when nothing is under way.
func (n *node) check() {
	t := n.w.t
	for _, p := range n.e.peers {
		if p.State == session.Vacant {
			continue
		}
		if p.flying != 0 {
			t.Fatalf("node %d: %d packets to %d are under way", n.id, p.flying, idOf(p.Addr))
		}
		for _, f := range p.tx {
			if f != nil && (f.live != nil || f.Queue != session.EmptyQueue || f.una != f.nxt) {
				t.Fatalf("node %d: flow %d to %d is not idle: %+v", n.id, f.service, idOf(p.Addr), *f)
			}
		}
		for _, f := range p.rx {
			if f != nil && f.assemblies != nil {
				t.Fatalf("node %d: flow %d from %d keeps messages", n.id, f.service, idOf(p.Addr))
			}
		}
	}
	for k := range n.e.messages {
		if i := n.e.links.New(); uint64(i) >= uint64(len(n.e.messages)) {
			t.Fatalf("node %d: %d of %d messages are free", n.id, k, len(n.e.messages))
		}
	}
	for i := range n.e.messages {
		n.e.links.Free(uint32(i))
	}
}
