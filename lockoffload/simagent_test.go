package lockoffload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// simAgent is the target's agent in a sim, with its device and the network
// between it and its callers, which loses, repeats and reorders. It dies now
// and then, perhaps in the middle of a WRITE, and another one takes its place.
type simAgent struct {
	s       *sim
	core    *agentCore
	now     time.Duration
	lives   uint16
	kills   int
	seed    uint64
	device  []*simList
	buffers []int32
	memory  [][]byte

	calls    []*simCall // without an answer
	requests []simMessage
	replies  []simMessage
	clients  []uint64
}

// simCall is a chain on its way.
type simCall struct {
	client, seq uint64
	body        []byte
	answered    func(wire.ChainReply)
}

type simMessage struct {
	client uint64
	body   []byte
}

const (
	simWindow = 2
	simLength = 512
)

func newSimAgent(s *sim, seed uint64, kills int) *simAgent {
	a := &simAgent{s: s, kills: kills, seed: seed}
	a.start()
	return a
}

// start is what NewAgent does, after the one before has gone.
func (a *simAgent) start() {
	s := a.s
	a.lives++
	l := agentLimits{
		peers: 64, window: simWindow, queue: 1 + int(a.seed%3), receives: 5, message: simLength,
		maxWait: 400 * time.Microsecond, eager: 10 * time.Microsecond, minPause: 5 * time.Microsecond, maxPause: 60 * time.Microsecond,
		patience: 200 * time.Microsecond,
	}
	slots := newSlotMemory(s.l, s.mem, a.lives)
	a.core = newAgentCore(l, slots, make([]byte, l.peers*(simWindow+1)*simLength), uint64(a.lives)<<33|s.rng.Uint64N(1<<32))
	a.device, a.buffers, a.memory = nil, nil, nil
	for j := range l.receives {
		a.buffers, a.memory = append(a.buffers, int32(j)), append(a.memory, make([]byte, simLength))
	}
	m := agentRecovery(s.mem)
	m.l, m.mem = s.l, make([]byte, s.l.LocalSize())
	for v, _ := m.step(); v == post; v, _ = m.step() {
		for x := (&simList{w: &m.work, ops: m.ops}); !s.execute(x); {
		}
	}
	for _, id := range a.clients {
		a.attach(id)
	}
}

func (a *simAgent) attach(id uint64) {
	if _, _, err := a.core.attach(id); err != nil {
		panic(err)
	}
}

// identity is what the agent is to a client.
func (a *simAgent) identity(id uint64) uint32 { return a.core.peers[a.core.byID[id]].identity }

// die ends the agent: of what it posted only a part was executed. It may have
// been about to write under a lock.
func (a *simAgent) die() {
	s := a.s
	for slot := range s.l.Slots {
		tag := memory.LoadWord(s.mem, s.l.LockOff(slot))
		if tag>>48 == memory.AgentOwner && tag&memory.ReadingTag == 0 && s.rng.IntN(2) == 0 {
			cur, err := s.current(slot)
			if err == nil {
				half := s.mem[s.l.CopyOff(slot, 1-cur.Which):]
				binary.LittleEndian.PutUint64(half, cur.Version+1)
				half[memory.HeaderSize] ^= 0xff
			}
		}
	}
	a.requests, a.replies = nil, nil
	a.start()
}

// call sends a chain; answered is called once, or never if the agent dies or
// the client.
func (a *simAgent) call(c *simCall) {
	a.calls = append(a.calls, c)
	a.requests = append(a.requests, simMessage{c.client, c.body})
}

// forgetCall has nobody wait for an answer.
func (a *simAgent) forgetCall(client, seq uint64) {
	a.calls = slices.DeleteFunc(a.calls, func(c *simCall) bool { return c.client == client && c.seq == seq })
}

// drop forgets the chains of a client that died.
func (a *simAgent) drop(client uint64) {
	a.calls = slices.DeleteFunc(a.calls, func(c *simCall) bool { return c.client == client })
	a.clients = slices.DeleteFunc(a.clients, func(id uint64) bool { return id == client })
	a.core.forget(client)
}

func (a *simAgent) idle() bool {
	return len(a.calls) == 0 && a.core.taken == 0 && len(a.device) == 0 && a.core.broker.Idle()
}

// turn lets something happen.
func (a *simAgent) turn() error {
	s := a.s
	a.now += time.Duration(s.rng.IntN(4000)) * time.Nanosecond
	switch n := s.rng.IntN(20); {
	case n < 3 && len(a.requests) > 0:
		m := pickOut(s.rng, &a.requests)
		switch s.rng.IntN(8) {
		case 0: // lost
		case 1:
			a.requests = append(a.requests, m) // and once more later
			a.deliver(m)
		default:
			a.deliver(m)
		}
	case n < 6 && len(a.replies) > 0:
		if m := pickOut(s.rng, &a.replies); s.rng.IntN(5) > 0 {
			return a.answer(m)
		}
	case n == 6 && len(a.calls) > 0: // again, with the same key
		c := a.calls[s.rng.IntN(len(a.calls))]
		a.requests = append(a.requests, simMessage{c.client, c.body})
	case n == 7 && len(a.clients) > 0 && s.rng.IntN(10) == 0:
		id := a.clients[s.rng.IntN(len(a.clients))]
		if s.rng.IntN(3) == 0 { // its place was given up meanwhile
			a.core.forget(id)
		}
		a.attach(id) // a new connection
	case n == 8 && a.kills > 0 && s.rng.IntN(30) == 0:
		a.kills--
		a.die()
	case n < 18 && len(a.device) > 0:
		if x := a.device[0]; s.execute(x) {
			a.device = a.device[1:]
			x.then()
		}
	}
	a.take()
	return nil
}

func (a *simAgent) deliver(m simMessage) {
	peer, known := a.core.byID[m.client]
	if !known {
		return
	}
	if len(a.buffers) == 0 {
		a.requests = append(a.requests, m)
		return
	}
	j := pickOut(a.s.rng, &a.buffers)
	r, _ := wire.DecodeRequest(m.body)
	if e := &a.core.peers[peer].entries[r.Seq%simWindow]; a.s.flaws.forgetful && e.seq == r.Seq && !e.running {
		*e = agentEntry{}
	}
	if a.s.flaws.anyAgent {
		r := slices.Clone(m.body)
		binary.LittleEndian.PutUint32(r[36:], 0)
		m.body = r
	}
	a.core.submit(a.now, j, peer, a.memory[j][:copy(a.memory[j], m.body)])
}

// take has the device and the network do what the core wants.
func (a *simAgent) take() {
	c := a.core
	c.turn(a.now)
	for i := 0; i < len(c.ops); {
		job, size := c.ops[i].job, 0
		x := &simList{w: &work{}}
		for more := true; more; i++ {
			x.ops = append(x.ops, c.ops[i].op)
			size += c.ops[i].n
			more = !c.ops[i].last
		}
		x.w.mem = make([]byte, size)
		x.then = func() {
			res := make([]uint64, size/8)
			for i := range res {
				res[i] = memory.LoadWord(x.w.mem, 8*i)
			}
			if a.s.flaws.blindAgent && len(res) > 1 {
				clear(res[1:])
			}
			c.result(a.now, job, res)
		}
		a.device = append(a.device, x)
	}
	for _, l := range c.broker.Lists {
		x := &simList{w: &work{mem: make([]byte, turnWords*8)}}
		for i, o := range l.Ops[:l.N] {
			x.ops = append(x.ops, op{kind: opCmpSwap, off: a.s.l.LockOff(int(l.Slot)), a: o.Compare, b: o.Swap, at: 8 * i, n: 8})
		}
		x.then = func() {
			c.turnResult(a.now, l.Index, []uint64{memory.LoadWord(x.w.mem, 0), memory.LoadWord(x.w.mem, 8)})
		}
		a.device = append(a.device, x)
	}
	c.broker.Lists = c.broker.Lists[:0]
	for _, o := range c.outs {
		p := &c.peers[o.peer]
		a.replies = append(a.replies, simMessage{p.id, bytes.Clone(c.reply(o.peer, o.entry)[:o.n])})
		c.sent(o.peer, p.conn)
	}
	a.buffers = append(a.buffers, c.free...)
	c.ops, c.outs, c.free = c.ops[:0], c.outs[:0], c.free[:0]
}

func (a *simAgent) answer(m simMessage) error {
	r, err := wire.DecodeReply(m.body)
	if err != nil || r.Client != m.client {
		return fmt.Errorf("reply %x: %w", m.body, err)
	}
	for i, c := range a.calls {
		if c.client == r.Client && c.seq == r.Seq {
			a.calls = slices.Delete(a.calls, i, i+1)
			c.answered(r)
			break
		}
	}
	return nil
}
