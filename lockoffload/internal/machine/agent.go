package machine

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/broker"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Agent makes the decisions of an agent: which chains it accepts, when it
// locks, accesses, unlocks and replies. It has no clock and posts nothing: time
// is passed in, and a call leaves its output in the output fields. Requests and
// replies stay where the device put and takes them.
//
// The rule that everything rests on: a reply is final for its key. Whatever the
// reply, "busy" included, a later copy of the same request gets the same reply
// again or "unknown", never another try.
type Agent struct {
	Limits  AgentLimits
	Slots   AgentSlots
	replies []byte // (window + 1) * message for each peer
	scratch []byte // for replies that no client waits for any more
	rng     *rand.Rand
	tags    uint32 // attempts so far
	id      uint32 // the last identity, see newIdentity
	// Fence orders stores before it before those behind it. nil: order does not matter.
	Fence func()

	jobs      []agentJob // one for each receive buffer
	peers     []agentPeer
	ByID      map[uint64]int32
	Taken     int      // jobs without a reply
	Unlocking int      // jobs that have their reply, but not yet the unlock command's result
	keeping   []int32  // of those, jobs that have not given back the lock yet
	turns     []int32  // peers with queued jobs; one that was served goes to the end
	moved     []int32  // scratch of start
	busy      []uint64 // one bit a slot: a job is at work on it
	came      []uint64 // likewise: a job has come since the last look for others of its slot
	look      bool     // a queued job may have become able to start
	alarm     time.Duration
	Broker    *broker.Broker // of clients that take locks themselves, in turn
	now       time.Duration  // when it was last

	// Output, taken and emptied by the driver, with the broker's lists.
	Ops   []AgentOp
	Outs  []agentReply
	Free  []int32 // receive buffers
	Stats AgentStats
}

// AgentLimits are the sizes of an agent.
type AgentLimits struct {
	Peers, Window int
	Queue         int // chains inside at a time
	Receives      int // above queue, so that the rest can be told so
	Message       int // bytes
	MaxWait       time.Duration
	Eager         time.Duration // tries without a pause, for so long
	MinPause      time.Duration
	MaxPause      time.Duration
	Keep          bool          // locks that others may be about to want, see Pause
	reservation   time.Duration // with a client that has its turn; 0 means reservationTimeout
	run, gap      time.Duration // of a lock that is handed on; 0 means turnRun and TurnGap
}

// Never is a time that does not come.
const Never = time.Duration(1<<63 - 1)

// AgentOp is a one-sided operation on lock words. Those of one job are in order
// and must be posted together; [Agent.Result] takes their results at once. Its
// local memory counts from the start of the job's results.
type AgentOp struct {
	Op
	Job  int32
	Last bool // of its job's list
}

// agentReply is a reply to be sent: n bytes of the peer's entry.
type agentReply struct {
	Peer, Entry int32
	N           int
}

func NewAgent(l AgentLimits, slots AgentSlots, replies []byte, seed uint64) *Agent {
	c := &Agent{
		Limits: l, Slots: slots, replies: replies, scratch: make([]byte, l.Message),
		rng:   rand.New(rand.NewPCG(seed, 1)),
		id:    uint32(seed >> 32),
		jobs:  make([]agentJob, l.Receives),
		peers: make([]agentPeer, l.Peers),
		ByID:  make(map[uint64]int32, l.Peers),
		turns: make([]int32, 0, l.Peers), moved: make([]int32, 0, l.Peers),
		busy:  make([]uint64, (slots.Slots+63)/64),
		came:  make([]uint64, (slots.Slots+63)/64),
		alarm: Never,
		Ops:   make([]AgentOp, 0, 2*l.Receives),
		Outs:  make([]agentReply, 0, 2*l.Receives),
		Free:  make([]int32, 0, l.Receives),
	}
	c.Broker = c.newBroker()
	for i := range c.peers {
		c.peers[i].entries = make([]agentEntry, l.Window+1)
	}
	return c
}

// Submit processes a message that was received into buffer j from a peer.
func (c *Agent) Submit(now time.Duration, j, peer int32, msg []byte) {
	p := &c.peers[peer]
	r, err := wire.DecodeRequest(msg)
	if err != nil || !p.live || r.Client != p.id {
		c.Stats.Malformed++
		c.Free = append(c.Free, j)
		return
	}
	if r.Turn == wire.TurnEnd {
		c.endTurn(now, peer, &r)
		c.Free = append(c.Free, j)
		return
	}
	at := int32(r.Seq % uint64(c.Limits.Window))
	e := &p.entries[at]
	switch {
	case e.seq > r.Seq:
		c.Stats.Unknown++
		at = int32(c.Limits.Window)
		if p.sending == 0 {
			p.entries[at].seq = r.Seq
			c.replyStatus(peer, at, wire.ChainUnknown, 0)
		}
	case e.seq == r.Seq && e.running:
		c.Stats.Repeated++ // its reply is to come
	case e.seq == r.Seq:
		c.Stats.Repeated++
		c.repeat(peer, at)
	case p.repeating(e):
		c.Stats.Unsent++ // its client asks again
	default:
		// The first SEND from this entry may have no completion yet, but its
		// reply has arrived: the client would not have gone on without it.
		c.withdraw(now, peer, e)
		*e = agentEntry{seq: r.Seq}
		if r.Agent != 0 && r.Agent != p.identity {
			// An agent before this one may have executed it, or this one
			// before it forgot the client.
			c.Stats.Unknown++
			c.replyStatus(peer, at, wire.ChainUnknown, 0)
			break
		}
		if r.Turn != wire.TurnNone {
			c.takeTurnRequest(now, peer, at, &r)
			break
		}
		if status := c.judge(p, &r); status != 0 {
			c.replyStatus(peer, at, status, 0)
			break
		}
		c.enqueue(now, j, peer, at, &r)
		return
	}
	c.Free = append(c.Free, j)
}

// judge returns 0 for a chain to accept, or the status to refuse it with. The fewer
// places are left, the fewer one peer may have.
func (c *Agent) judge(p *agentPeer, r *wire.ChainRequest) wire.ChainStatus {
	if !c.sensible(r) {
		c.Stats.Refused++
		return wire.ChainRefused
	}
	left := c.Limits.Queue - c.Taken
	if left <= 0 || p.inside >= max(1, left) {
		c.Stats.Busy++
		return wire.ChainBusy
	}
	return 0
}

func (c *Agent) sensible(r *wire.ChainRequest) bool {
	if uint64(r.Slot) >= uint64(c.Slots.Slots) {
		return false
	}
	reply := wire.ChainReplyHead
	for ops := r.Ops; ops.N > 0; {
		a := ops.Next()
		reply += wire.AccessHead
		switch {
		case int(a.Record) >= c.Slots.Records, a.Kind != wire.AccessWrite && len(a.Data) > 0:
			return false
		case a.Kind == wire.AccessRead:
			reply += wire.Pad8(c.Slots.Size)
		case a.Kind == wire.AccessWrite && (r.Shared || len(a.Data) > c.Slots.Size):
			return false
		}
	}
	return reply <= c.Limits.Message
}

func (c *Agent) enqueue(now time.Duration, j, peer, entry int32, r *wire.ChainRequest) {
	p := &c.peers[peer]
	p.entries[entry].running = true
	wait := c.Limits.MaxWait
	if d := time.Duration(r.Deadline) * time.Microsecond; d > 0 {
		wait = min(wait, d)
	}
	c.jobs[j] = agentJob{
		state: jobQueued, peer: peer, gen: p.gen, entry: entry, request: *r,
		until: now + wait, pause: c.Limits.MinPause,
	}
	c.wakeAt(c.jobs[j].until)
	c.Stats.Accepted++
	c.Taken++
	p.inside++
	p.queue = append(p.queue, j)
	if !p.inTurns {
		p.inTurns = true
		c.turns = append(c.turns, peer)
	}
	c.came[r.Slot/64] |= 1 << (r.Slot % 64)
	c.look = true
}

// Turn starts jobs that can start and wakes those that waited long enough.
func (c *Agent) Turn(now time.Duration) {
	if now >= c.alarm {
		c.wake(now)
	}
	c.keep(now)
	for c.look {
		c.look = false
		c.start(now)
	}
	c.now = now
	c.Broker.Turn(now)
	c.replyTurns(now)
}

// start gives each peer with queued jobs one chance. Those that got something
// go behind those that did not.
func (c *Agent) start(now time.Duration) {
	kept := c.turns[:0]
	c.moved = c.moved[:0]
	for _, peer := range c.turns {
		p := &c.peers[peer]
		started := c.startOne(now, p)
		switch {
		case len(p.queue) == 0:
			p.inTurns = false
		case started:
			c.look = true
			c.moved = append(c.moved, peer)
		default:
			kept = append(kept, peer)
		}
	}
	c.turns = append(kept, c.moved...)
}

// startOne starts the first queued job of a peer for a slot on which no job is at work.
func (c *Agent) startOne(now time.Duration, p *agentPeer) bool {
	for i, j := range p.queue {
		job := &c.jobs[j]
		slot := job.request.Slot
		if c.busy[slot/64]&(1<<(slot%64)) != 0 {
			job.waited = true
			continue
		}
		c.busy[slot/64] |= 1 << (slot % 64)
		p.queue = slices.Delete(p.queue, i, i+1)
		job.began = now
		if job.waited {
			c.yield(j)
		} else {
			c.try(now, j)
		}
		return true
	}
	return false
}

// wake ends queued jobs that have reached their deadline, and tries jobs again that have
// slept long enough.
func (c *Agent) wake(now time.Duration) {
	c.alarm = Never
	for i := range c.peers {
		p := &c.peers[i]
		kept := p.queue[:0]
		for _, j := range p.queue {
			if until := c.jobs[j].until; until > now {
				c.wakeAt(until)
				kept = append(kept, j)
				continue
			}
			c.conclude(j, wire.ChainNotAcquired)
			c.finish(j)
		}
		p.queue = kept
	}
	for j := range c.jobs {
		switch job := &c.jobs[j]; {
		case !job.asleep:
		case job.at <= now:
			job.asleep = false
			c.try(now, int32(j))
		default:
			c.wakeAt(job.at)
		}
	}
}

func (c *Agent) wakeAt(t time.Duration) { c.alarm = min(c.alarm, t) }
