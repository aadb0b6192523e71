package machine

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// agentJob is a chain that an agent was given:
//
//	queued ─▶ [yielding] ─▶ locking ─▶ [draining] ─▶ access and reply ──▶ [keeping] ─▶ unlocking
//	                          │  ▲         │                                              ▲
//	                          ▼  │         └── no more time, reply ───────────────────────┘
//	                        asleep ── no more time, reply
//
// A shared chain, which only reads, takes the lock with a tag that says so. It
// does not wait for readers, nor need they wait for it.
type agentJob struct {
	state   jobState
	asleep  bool // until at
	waited  bool // for another job with the same slot
	peer    int32
	gen     uint32 // of the peer
	entry   int32
	request wire.ChainRequest // a view of the receive buffer
	tag     uint64
	words   int  // of the results that it waits for
	carried int  // chains of others that were executed under its lock
	paused  bool // the driver paused since it was last of use, see Agent.Pause
	tries   uint32
	began   time.Duration
	until   time.Duration // deadline
	at      time.Duration
	pause   time.Duration
}

type jobState uint8

const (
	jobIdle jobState = iota
	jobQueued
	jobYielding // leaves the lock free for a moment
	jobLocking
	jobDraining // holds the lock, waits for readers to leave
	jobUnlocking
)

// yield keeps a job that waited for the agent's own lock from taking it at
// once: clients that lock without the agent are farther away, and would never
// find the lock free. One READ through the device is a measure of time that
// timers are too coarse for.
func (c *Agent) yield(j int32) {
	job := &c.jobs[j]
	job.state = jobYielding
	c.post(j, Op{Kind: OpRead, Off: c.Slots.LockOff(int(job.request.Slot)), N: 8})
}

// try examines the lock.
func (c *Agent) try(now time.Duration, j int32) {
	job := &c.jobs[j]
	if job.tries > 0 && now >= job.until {
		c.giveUp(j)
		return
	}
	job.tries++
	c.Stats.Tries++
	slot := int(job.request.Slot)
	if job.state == jobDraining { // the way through the device is the pause
		c.post(j, Op{Kind: OpRead, Off: c.Slots.ReadersOff(slot), N: c.Slots.ReadersSize()})
		return
	}
	c.tags++
	job.state, job.tag = jobLocking, c.Slots.tag(c.tags, job.request.Shared)
	c.post(j, Op{Kind: OpCmpSwap, Off: c.Slots.LockOff(slot), B: job.tag, N: 8})
}

func (c *Agent) post(j int32, ops ...Op) {
	at := 0
	for i, o := range ops {
		o.At = at
		at += o.N
		c.Ops = append(c.Ops, AgentOp{Op: o, Job: j, Last: i == len(ops)-1})
	}
	c.jobs[j].words = at / 8
}

// Result takes the results of a job's operations, in order, at the start of res.
func (c *Agent) Result(now time.Duration, j int32, res []uint64) {
	job := &c.jobs[j]
	res = res[:job.words]
	switch job.state {
	case jobYielding:
		c.try(now, j)
	case jobLocking:
		switch {
		case res[0] != 0:
			c.again(now, j)
		case !job.request.Shared && c.Slots.anyReader(int(job.request.Slot)):
			job.state = jobDraining
			c.again(now, j)
		default:
			c.held(now, j)
		}
	case jobDraining:
		if slices.ContainsFunc(res, func(w uint64) bool { return w != 0 }) {
			c.again(now, j)
			break
		}
		c.held(now, j)
	case jobUnlocking:
		if res[0] != job.tag {
			c.Stats.Lost++
		}
		c.Unlocking--
		c.finish(j)
	}
}

// maxCarried is how many chains one lock serves beside its own, at most:
// clients that lock without the agent want their turn.
const maxCarried = 15

// held performs the accesses of a job that has its lock, and of others that
// wait for the same slot, one of each peer in turn.
func (c *Agent) held(now time.Duration, j int32) {
	c.conclude(j, c.access(j))
	c.Unlocking++
	c.carryAll(now, j)
	if c.Limits.Keep && c.jobs[j].carried < maxCarried {
		c.keeping = append(c.keeping, j)
		return
	}
	c.unlock(j)
}

// carryAll executes queued chains for the slot of a job, under its lock, and reports
// whether there were any.
func (c *Agent) carryAll(now time.Duration, j int32) (any bool) {
	job := &c.jobs[j]
	c.came[job.request.Slot/64] &^= 1 << (job.request.Slot % 64)
	for more := true; more; {
		more = false
		for _, peer := range c.turns {
			if job.carried == maxCarried {
				break
			}
			if c.carry(now, &c.peers[peer], job) {
				job.carried++
				any, more = true, true
			}
		}
	}
	return any
}

// keep executes chains that have arrived meanwhile for kept locks, and gives back locks
// for which none arrived.
func (c *Agent) keep(now time.Duration) {
	kept := c.keeping[:0]
	for _, j := range c.keeping {
		job := &c.jobs[j]
		slot := job.request.Slot
		if c.came[slot/64]&(1<<(slot%64)) != 0 && c.carryAll(now, j) {
			job.paused = false
		}
		if job.paused || job.carried == maxCarried {
			c.unlock(j)
			continue
		}
		kept = append(kept, j)
	}
	c.keeping = kept
}

// Keeps reports whether locks are kept that no chain uses. Then [Agent.Pause] must be
// called soon.
func (c *Agent) Keeps() bool { return len(c.keeping) > 0 }

// Pause says that clients have had the time to send their next requests. The caller must
// then submit those that have arrived and call Turn, which gives back locks that were kept
// in vain.
func (c *Agent) Pause() {
	for _, j := range c.keeping {
		c.jobs[j].paused = true
	}
}

// carry executes one queued job of a peer under the lock of holder, if there
// is one that fits.
func (c *Agent) carry(now time.Duration, p *agentPeer, holder *agentJob) bool {
	for i, k := range p.queue {
		job := &c.jobs[k]
		if job.request.Slot != holder.request.Slot || holder.request.Shared && !job.request.Shared || job.until <= now {
			continue
		}
		p.queue = slices.Delete(p.queue, i, i+1)
		job.tries = 1
		c.conclude(k, c.access(k))
		c.finish(k)
		c.Stats.Carried++
		return true
	}
	return false
}

// again tries again, if that may be: at once in the beginning, when the way
// through the device is pause enough, then after a sleep.
func (c *Agent) again(now time.Duration, j int32) {
	job := &c.jobs[j]
	if limit := job.request.Tries; limit > 0 && job.tries >= limit || now >= job.until {
		c.giveUp(j)
		return
	}
	if now-job.began < c.Limits.Eager {
		c.try(now, j)
		return
	}
	// Half of the pause is random: others try too.
	job.at = min(job.until, now+job.pause/2+time.Duration(c.rng.Int64N(int64(job.pause/2)+1)))
	job.pause = min(2*job.pause, c.Limits.MaxPause)
	job.asleep = true
	c.wakeAt(job.at)
}

// giveUp ends a chain that accessed nothing.
func (c *Agent) giveUp(j int32) {
	c.conclude(j, wire.ChainNotAcquired)
	if c.jobs[j].state == jobDraining {
		c.Unlocking++
		c.unlock(j)
		return
	}
	c.finish(j)
}

// unlock posts the unlock command right behind the replies, which do not wait for
// its completion: no client takes a lock from an agent.
func (c *Agent) unlock(j int32) {
	job := &c.jobs[j]
	job.state = jobUnlocking
	c.post(j, Op{Kind: OpCmpSwap, Off: c.Slots.LockOff(int(job.request.Slot)), A: job.tag, N: 8})
}

// access executes a chain's operations, with the lock held: all of them, or
// none of its WRITEs, which become visible together.
func (c *Agent) access(j int32) wire.ChainStatus {
	job := &c.jobs[j]
	slot := int(job.request.Slot)
	old, err := c.Slots.read(slot)
	if err != nil {
		return wire.ChainDamaged
	}
	status, writes := wire.ChainDone, false
	for ops := job.request.Ops; ops.N > 0; {
		a := ops.Next()
		r, err := c.Slots.Record(&old, int(a.Record))
		if err != nil {
			return wire.ChainDamaged
		}
		if a.Kind == wire.AccessCompare && r.Version != a.Version {
			status = wire.ChainDiffers
		}
		writes = writes || a.Kind == wire.AccessWrite
	}
	now := old
	var dst []byte
	if writes && status == wire.ChainDone {
		dst = c.Slots.change(slot, &old)
	}
	b := c.buffer(j)
	head := wire.ChainReply{Client: job.request.Client, Seq: job.request.Seq, Status: status, Agent: c.peers[job.peer].identity}
	b = head.AppendTo(b[:0])
	n := job.request.Ops.N
	for ops := job.request.Ops; ops.N > 0; {
		a := ops.Next()
		was, _ := c.Slots.Record(&old, int(a.Record)) // looked at above
		switch {
		case a.Kind == wire.AccessWrite && dst != nil:
			c.Slots.Put(dst, int(a.Record), was.Version+1, a.Data)
			now = c.Slots.Staged(dst, old.Version+1)
			a.Version, a.Data = was.Version+1, nil
		case a.Kind == wire.AccessRead:
			r, _ := c.Slots.Record(&now, int(a.Record))
			a.Version, a.Data = r.Version, r.Data
		default:
			r, _ := c.Slots.Record(&now, int(a.Record))
			a.Version, a.Data = r.Version, nil
		}
		b = wire.AppendAccess(b, a)
	}
	if dst != nil {
		c.Slots.changed(slot, dst, old.Version+1)
		if c.Fence != nil { // before the stores of the next chain
			c.Fence()
		}
	}
	wire.SealMessage(b, n)
	return status
}

// buffer returns the memory for the reply of a job: its entry, or scratch if the entry
// has gone to a later chain of a client that did not wait.
func (c *Agent) buffer(j int32) []byte {
	job := &c.jobs[j]
	if !c.wanted(job) {
		return c.scratch
	}
	return c.reply(job.peer, job.entry)
}

func (c *Agent) wanted(job *agentJob) bool {
	p := &c.peers[job.peer]
	return p.live && p.gen == job.gen && p.entries[job.entry].seq == job.request.Seq
}

// conclude sends the reply of a job. From then on its client may send the next one in
// its place, whether the lock is free already or not.
func (c *Agent) conclude(j int32, status wire.ChainStatus) {
	job := &c.jobs[j]
	c.Stats.count(status)
	c.Taken--
	if p := &c.peers[job.peer]; p.gen == job.gen {
		p.inside--
	}
	if !c.wanted(job) {
		return
	}
	c.peers[job.peer].entries[job.entry].running = false
	switch status {
	case wire.ChainDone, wire.ChainDiffers: // access left a reply
		binary.LittleEndian.PutUint32(c.reply(job.peer, job.entry)[24:], job.tries)
		c.send(job.peer, job.entry)
	default:
		c.replyStatus(job.peer, job.entry, status, job.tries)
	}
}

// finish frees the slot and the receive buffer of a job.
func (c *Agent) finish(j int32) {
	job := &c.jobs[j]
	if job.state != jobQueued {
		slot := job.request.Slot
		c.busy[slot/64] &^= 1 << (slot % 64)
		c.look = true
	}
	*job = agentJob{}
	c.Free = append(c.Free, j)
}
