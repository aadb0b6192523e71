package machine

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
	core    *Agent
	now     time.Duration
	lives   uint16
	kills   int
	seed    uint64
	device  []*simList
	buffers []int32
	memory  [][]byte

	calls    []*simCall // without a reply
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
	l := AgentLimits{
		Peers: 64, Window: simWindow, Queue: 1 + int(a.seed%3), Receives: 5, Message: simLength,
		MaxWait: 400 * time.Microsecond, Eager: 10 * time.Microsecond, MinPause: 5 * time.Microsecond, MaxPause: 60 * time.Microsecond,
		reservation: 200 * time.Microsecond, run: 300 * time.Microsecond, gap: 40 * time.Microsecond,
		Keep: a.seed%4 > 0,
	}
	slots := NewAgentSlots(s.l, s.mem, a.lives)
	a.core = NewAgent(l, slots, make([]byte, l.Peers*(simWindow+1)*simLength), uint64(a.lives)<<33|s.rng.Uint64N(1<<32))
	a.device, a.buffers, a.memory = nil, nil, nil
	for j := range l.Receives {
		a.buffers, a.memory = append(a.buffers, int32(j)), append(a.memory, make([]byte, simLength))
	}
	m := AgentRecovery(s.mem)
	m.L, m.Mem = s.l, make([]byte, s.l.LocalSize())
	for v, _ := m.Step(); v == Post; v, _ = m.Step() {
		for x := (&simList{w: &m.Work, ops: m.Ops}); !s.execute(x); {
		}
	}
	for _, id := range a.clients {
		a.attach(id)
	}
}

func (a *simAgent) attach(id uint64) {
	if _, _, err := a.core.Attach(id); err != nil {
		panic(err)
	}
}

// identity is what the agent is to a client.
func (a *simAgent) identity(id uint64) uint32 { return a.core.peers[a.core.ByID[id]].identity }

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

// forgetCall drops a call, so that none waits for the reply.
func (a *simAgent) forgetCall(client, seq uint64) {
	a.calls = slices.DeleteFunc(a.calls, func(c *simCall) bool { return c.client == client && c.seq == seq })
}

// drop forgets the chains of a client that died.
func (a *simAgent) drop(client uint64) {
	a.calls = slices.DeleteFunc(a.calls, func(c *simCall) bool { return c.client == client })
	a.clients = slices.DeleteFunc(a.clients, func(id uint64) bool { return id == client })
	a.core.Forget(client)
}

func (a *simAgent) idle() bool {
	return len(a.calls) == 0 && a.core.Taken == 0 && !a.core.Keeps() && len(a.device) == 0 && a.core.Broker.Idle()
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
			return a.reply(m)
		}
	case n == 6 && len(a.calls) > 0: // again, with the same key
		c := a.calls[s.rng.IntN(len(a.calls))]
		a.requests = append(a.requests, simMessage{c.client, c.body})
	case n == 7 && len(a.clients) > 0 && s.rng.IntN(10) == 0:
		id := a.clients[s.rng.IntN(len(a.clients))]
		if s.rng.IntN(3) == 0 { // its place was given up meanwhile
			a.core.Forget(id)
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
	peer, known := a.core.ByID[m.client]
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
	a.core.Submit(a.now, j, peer, a.memory[j][:copy(a.memory[j], m.body)])
}

// take has the device and the network do what the core wants.
func (a *simAgent) take() {
	c := a.core
	if c.Keeps() && a.s.rng.IntN(3) == 0 {
		c.Pause()
	}
	c.Turn(a.now)
	for i := 0; i < len(c.Ops); {
		job, size := c.Ops[i].Job, 0
		x := &simList{w: &Work{}}
		for more := true; more; i++ {
			x.ops = append(x.ops, c.Ops[i].Op)
			size += c.Ops[i].N
			more = !c.Ops[i].Last
		}
		x.w.Mem = make([]byte, size)
		x.then = func() {
			res := make([]uint64, size/8)
			for i := range res {
				res[i] = memory.LoadWord(x.w.Mem, 8*i)
			}
			c.blindly(a.s.flaws.blindAgent, job, func() { c.Result(a.now, job, res) })
		}
		a.device = append(a.device, x)
	}
	for _, l := range c.Broker.Lists {
		x := &simList{w: &Work{Mem: make([]byte, TurnWords*8)}}
		for i, o := range l.Ops[:l.N] {
			x.ops = append(x.ops, Op{Kind: OpCmpSwap, Off: a.s.l.LockOff(int(l.Slot)), A: o.Compare, B: o.Swap, At: 8 * i, N: 8})
		}
		x.then = func() {
			c.TurnResult(a.now, l.Index, []uint64{memory.LoadWord(x.w.Mem, 0), memory.LoadWord(x.w.Mem, 8)})
		}
		a.device = append(a.device, x)
	}
	c.Broker.Lists = c.Broker.Lists[:0]
	for _, o := range c.Outs {
		p := &c.peers[o.Peer]
		a.replies = append(a.replies, simMessage{p.id, bytes.Clone(c.reply(o.Peer, o.Entry)[:o.N])})
		c.Sent(o.Peer, p.conn)
	}
	a.buffers = append(a.buffers, c.Free...)
	c.Ops, c.Outs, c.Free = c.Ops[:0], c.Outs[:0], c.Free[:0]
}

func (a *simAgent) reply(m simMessage) error {
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
