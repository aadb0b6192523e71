package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// agentBench is a core; the test supplies the results of its lock commands.
type agentBench struct {
	*Agent
	t    *testing.T
	next int32
}

func newAgentBench(t *testing.T, queue int) *agentBench {
	return newAgentBenchOf(t, queue, memory.Layout{Slots: 4, Size: 16})
}

func newAgentBenchOf(t *testing.T, queue int, layout memory.Layout) *agentBench {
	l := AgentLimits{
		Peers: 4, Window: 4, Queue: queue, Receives: queue + 8, Message: 256,
		MaxWait: time.Millisecond, MinPause: 10 * time.Microsecond, MaxPause: 40 * time.Microsecond,
	}
	s := newAgentSimSlots(layout)
	return &agentBench{Agent: NewAgent(l, s, make([]byte, 4*5*256), 1), t: t}
}

func (b *agentBench) client(id uint64) int32 {
	peer, _, err := b.Attach(id)
	require.NoError(b.t, err)
	return peer
}

// write submits a chain that writes, in a buffer of its own.
func (b *agentBench) write(now time.Duration, peer int32, seq uint64, slot, tries uint32) int32 {
	r := wire.ChainRequest{Client: b.peers[peer].id, Seq: seq, Slot: slot, Tries: tries, Deadline: 500}
	msg := wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessWrite, Data: []byte{byte(seq)}}), 1)
	j := b.next
	if n := len(b.Free); n > 0 {
		j, b.Free = b.Free[n-1], b.Free[:n-1]
	} else {
		b.next++
	}
	b.Submit(now, j, peer, msg)
	b.Turn(now)
	return j
}

// done completes the operations that are posted, with the words that they find.
func (b *agentBench) done(now time.Duration, words ...uint64) {
	job := b.Ops[0].Job
	n := 0
	for n < len(b.Ops) && b.Ops[n].Job == job {
		n++
	}
	b.Ops = append(b.Ops[:0], b.Ops[n:]...)
	b.Result(now, job, words)
	b.Turn(now)
}

// status takes the reply that is to be sent next.
func (b *agentBench) status() wire.ChainReply {
	require.NotEmpty(b.t, b.Outs)
	o := b.Outs[0]
	b.Outs = b.Outs[1:]
	r, err := wire.DecodeReply(b.reply(o.Peer, o.Entry)[:o.N])
	require.NoError(b.t, err)
	b.Sent(o.Peer, b.peers[o.Peer].conn)
	return r
}

func (b *agentBench) complete(now time.Duration) {
	b.done(now, 0)
	b.done(now, b.jobs[b.Ops[0].Job].tag)
}

func TestAgentRetriesAreCounted(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 3)
	now := time.Duration(0)
	for range 3 {
		require.Len(t, b.Ops, 1)
		b.done(now, 99) // held by 99
		now = b.alarm
		b.Turn(now)
	}
	r := b.status()
	require.Equal(t, wire.ChainNotAcquired, r.Status)
	require.Equal(t, uint32(3), r.Tries)
	require.Zero(t, record(t, b, 0).Version, "nothing was written")
	require.Empty(t, b.Ops, "and nothing to unlock")
}

// Before it sleeps it tries without a pause.
func TestAgentIsEagerAtFirst(t *testing.T) {
	b := newAgentBench(t, 8)
	b.Limits.Eager = 5 * time.Microsecond
	b.write(0, b.client(7), 1, 0, 0)
	for i := range 5 {
		b.done(time.Duration(i)*time.Microsecond, 99)
		require.Len(t, b.Ops, 1)
	}
	b.done(5*time.Microsecond, 99)
	require.Empty(t, b.Ops)
	require.Less(t, b.alarm, 20*time.Microsecond)
}

func TestAgentDeadline(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 0)
	b.write(0, p, 2, 0, 0) // behind it, on the same slot
	now := time.Duration(0)
	for range 1000 {
		if len(b.Outs) == 2 {
			break
		}
		if len(b.Ops) > 0 {
			b.done(now, 99)
		}
		now = max(now, min(b.alarm, time.Second))
		b.Turn(now)
	}
	require.Equal(t, 500*time.Microsecond, now)
	for range 2 {
		require.Equal(t, wire.ChainNotAcquired, b.status().Status)
	}
	require.Zero(t, b.Taken)
}

// A writer that met readers holds the lock while they leave; when they do not,
// it gives the lock back.
func TestAgentWaitsForReaders(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 3)
	b.reader(0, 2)
	b.done(0, 0)
	require.Empty(t, b.Ops)
	for range 2 {
		now := b.alarm
		b.Turn(now)
		require.Equal(t, OpRead, b.Ops[0].Kind)
		b.done(now, 4)
	}
	require.Equal(t, OpCmpSwap, b.Ops[0].Kind)
	require.Equal(t, b.jobs[b.Ops[0].Job].tag, b.Ops[0].A, "it unlocks")
	b.done(0, b.Ops[0].A)
	require.Equal(t, wire.ChainNotAcquired, b.status().Status)
}

// reader sets the bit of a reader, counted from 0.
func (b *agentBench) reader(slot, bit int) {
	at := b.Slots.ReadersOff(slot) + bit/64*8
	storeWord(b.Slots.mem, at, memory.LoadWord(b.Slots.mem, at)|1<<(bit%64))
}

// It sees all readers of its slot, and none of others.
func TestAgentSeesReaders(t *testing.T) {
	for _, bit := range []int{0, 63, 64, 511} {
		b := newAgentBenchOf(t, 8, memory.Layout{Slots: 4, Size: 16, Clients: 512})
		p := b.client(7)
		b.reader(1, bit)
		b.write(0, p, 1, 0, 3)
		b.complete(0)
		require.Equal(t, wire.ChainDone, b.status().Status)
		b.write(0, p, 2, 1, 3)
		b.done(0, 0)
		require.Empty(t, b.Outs, "it waits for reader %d", bit)
		b.Turn(b.alarm)
		b.done(0, make([]uint64, 8)...) // the reader has gone
		require.Equal(t, wire.ChainDone, b.status().Status)
	}
}

func TestAgentOverload(t *testing.T) {
	b := newAgentBench(t, 6)
	greedy, other := b.client(1), b.client(2)
	for seq := range uint64(4) {
		b.write(0, greedy, seq+1, 0, 0)
	}
	require.Equal(t, wire.ChainBusy, b.status().Status, "the fourth: half of the room is taken")
	b.write(0, other, 1, 0, 0)
	require.Empty(t, b.Outs, "another client still gets in")
	b.write(0, greedy, 4, 0, 0)
	require.Equal(t, wire.ChainBusy, b.status().Status, "and busy stays busy for its key")
	require.EqualValues(t, 1, b.Stats.Repeated)
}

// Two clients want one slot. One has a chain at work and three that wait before
// the other comes.
func TestAgentFairness(t *testing.T) {
	b := newAgentBench(t, 40)
	greedy, other := b.client(1), b.client(2)
	for seq := range uint64(4) {
		b.write(0, greedy, seq+1, 0, 0)
	}
	b.write(0, other, 1, 0, 0)
	b.write(0, other, 2, 0, 0)
	b.complete(0)
	require.EqualValues(t, 5, b.Stats.Carried, "all of them under one lock")
	var order []uint64
	for i := range 6 {
		r := b.status()
		order = append(order, r.Client)
		require.EqualValues(t, i+1, r.Ops.Next().Version, "executed in this order")
	}
	require.Equal(t, []uint64{1, 1, 2, 1, 2, 1}, order)
}

// A shared chain does not wait for readers: no writer goes under its lock.
func TestAgentCarriesReadersOnly(t *testing.T) {
	b := newAgentBench(t, 40)
	p, other := b.client(1), b.client(2)
	r := wire.ChainRequest{Client: 1, Seq: 1, Shared: true}
	b.Submit(0, 20, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessRead}), 1))
	b.Turn(0)
	b.write(0, other, 1, 0, 0)
	r.Seq = 2
	b.Submit(0, 21, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessRead}), 1))
	b.Turn(0)
	require.NotZero(t, b.jobs[20].tag&memory.ReadingTag)
	require.Len(t, b.Ops, 1, "nor does it look at them")
	b.done(0, 0)
	b.done(0, b.jobs[20].tag)
	require.Equal(t, []uint64{1, 2}, []uint64{b.status().Seq, b.status().Seq})
	require.Empty(t, b.Outs)
	require.Equal(t, OpRead, b.Ops[0].Kind, "the lock is free for a moment")
	b.done(0, 0)
	b.complete(0)
	require.EqualValues(t, 2, b.status().Client)
}

// A lock is kept until clients had the time to send the next chain, which is executed
// under it; and given back when none came, or sixteen did.
func TestAgentKeepsTheLock(t *testing.T) {
	b := newAgentBench(t, 40)
	b.Limits.Keep = true
	p, other := b.client(1), b.client(2)
	b.write(0, p, 1, 0, 0)
	b.done(0, 0)
	require.Equal(t, wire.ChainDone, b.status().Status, "the answer does not wait for that")
	b.Turn(0)
	require.Empty(t, b.Ops, "nobody had the time yet")
	require.True(t, b.Keeps())
	require.Equal(t, 1, b.Unlocking, "the agent is not idle")

	b.Pause()
	b.write(0, other, 1, 0, 0)
	require.Empty(t, b.Ops)
	r := b.status()
	require.EqualValues(t, 2, r.Client)
	require.EqualValues(t, 2, r.Ops.Next().Version)
	b.Turn(0)
	require.Empty(t, b.Ops, "it was of use, and the next ones get as long")

	b.Pause()
	b.write(0, other, 2, 1, 0) // another slot's
	require.Len(t, b.Ops, 2)
	tag := b.jobs[b.Ops[0].Job].tag
	require.Equal(t, Op{Kind: OpCmpSwap, Off: b.Slots.LockOff(0), A: tag, N: 8}, b.Ops[0].Op)
	b.done(0, tag)
	b.done(0, 0)
	require.Equal(t, wire.ChainDone, b.status().Status)

	for seq := uint64(3); seq < 18; seq++ {
		require.Empty(t, b.Ops, "chain %d", seq)
		b.Pause()
		b.write(0, other, seq, 1, 0)
		require.Equal(t, seq, b.status().Seq)
	}
	require.Len(t, b.Ops, 1, "others want their turn")
	require.False(t, b.Keeps())
	b.write(0, p, 2, 1, 0)
	require.Len(t, b.Ops, 1, "what comes now waits")
	b.done(0, b.Ops[0].A)
	require.Equal(t, OpRead, b.Ops[0].Kind, "and the lock is free for a moment")
	require.Zero(t, b.Unlocking)
}

func TestAgentOldAndStrange(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 0)
	b.complete(0)
	require.Equal(t, wire.ChainDone, b.status().Status)
	b.write(0, p, 5, 1, 0) // the window is 4: chain 1 is forgotten
	b.complete(0)
	b.status()
	b.write(0, p, 1, 0, 0)
	require.Equal(t, wire.ChainUnknown, b.status().Status)
	b.write(0, p, 6, 4, 0) // no such slot
	require.Equal(t, wire.ChainRefused, b.status().Status)
	require.EqualValues(t, 2, b.Stats.Done)

	other := b.client(8)
	r := wire.ChainRequest{Client: 7, Seq: 9}
	b.Submit(0, b.Free[0], other, wire.SealMessage(r.AppendTo(nil), 0))
	require.Empty(t, b.Outs, "a client must not speak for another")
	require.EqualValues(t, 1, b.Stats.Malformed)
}

// A client that is forgotten in the middle: running chains end and unlock, waiting
// ones do not begin, and the next client in its place gets no reply to either.
func TestAgentForgets(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 0)
	b.write(0, p, 2, 0, 0)
	b.Forget(7)
	require.Equal(t, p, b.client(8))
	b.write(0, p, 1, 0, 0)
	b.complete(0) // of 7, and 8's with it
	require.EqualValues(t, 8, b.status().Client)
	require.Empty(t, b.Outs)
	require.EqualValues(t, 2, record(t, b, 0).Version)
	require.Zero(t, b.Taken)
	require.Zero(t, b.peers[p].inside)
}

func record(t *testing.T, b *agentBench, slot int) memory.Content {
	now, err := b.Slots.read(slot)
	require.NoError(t, err)
	r, err := b.Slots.Record(&now, 0)
	require.NoError(t, err)
	return r
}

// Another client took the lock away meanwhile.
func TestAgentLost(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 0)
	b.done(0, 0, 0)
	require.Equal(t, wire.ChainDone, b.status().Status, "the answer does not wait for the unlock")
	require.Zero(t, b.Taken, "nor does the next chain")
	b.done(0, 55)
	require.EqualValues(t, 1, b.Stats.Lost)
}

func TestAgentDamagedRecord(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	for i := range 2 {
		b.Slots.mem[b.Slots.CopyOff(0, i)] ^= 1
	}
	b.write(0, p, 1, 0, 0)
	b.complete(0)
	require.Equal(t, wire.ChainDamaged, b.status().Status)
}

func TestAgentStepsAllocateNothing(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	seq := uint64(0)
	msg := make([]byte, 0, 256)
	res := make([]uint64, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		seq++
		r := wire.ChainRequest{Client: 7, Seq: seq}
		msg = wire.SealMessage(wire.AppendAccess(r.AppendTo(msg[:0]), wire.Access{Kind: wire.AccessWrite}), 1)
		b.Free = b.Free[:0]
		b.Submit(0, 0, p, msg)
		b.Turn(0)
		res[0], res[1] = 0, 0
		b.Ops = b.Ops[:0]
		b.Result(0, 0, res)
		res[0] = b.jobs[0].tag
		b.Ops = b.Ops[:0]
		b.Result(0, 0, res)
		b.Outs = b.Outs[:0]
		b.Sent(p, 1)
		b.Turn(0)
	}))
	require.EqualValues(t, 101, b.Stats.Done)
}

// A chain that was made for an agent before this one may have been executed by
// it. It is not executed, whichever copy of it comes.
func TestAgentRefusesChainsOfAnother(t *testing.T) {
	b := newAgentBench(t, 4)
	p := b.client(7)
	for j := range int32(2) {
		r := wire.ChainRequest{Client: 7, Seq: 5, Agent: b.peers[p].identity + 1}
		b.Submit(0, j, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessWrite, Data: []byte{1}}), 1))
		b.Turn(0)
		require.Empty(t, b.Ops)
		answer := b.status()
		require.EqualValues(t, 5, answer.Seq)
		require.Equal(t, wire.ChainUnknown, answer.Status)
		require.Equal(t, b.peers[p].identity, answer.Agent, "now the client knows which one this is")
	}
	r := wire.ChainRequest{Client: 7, Seq: 6, Agent: b.peers[p].identity}
	b.Submit(0, 3, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessWrite, Data: []byte{1}}), 1))
	b.Turn(0)
	require.NotEmpty(t, b.Ops, "its own ones are")
}

// A client that was forgotten, and comes back under the same name, issues chains without a
// reply again. It is not known whether they were executed.
func TestAgentExecutesNothingOfAForgottenClient(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.write(0, p, 1, 0, 0)
	b.complete(0)
	first := b.status()
	require.Equal(t, wire.ChainDone, first.Status)
	ask := func(p int32, j int32, agent uint32) wire.ChainReply {
		r := wire.ChainRequest{Client: 7, Seq: 5, Agent: agent}
		b.Submit(0, j, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessWrite, Data: []byte{5}}), 1))
		b.Turn(0)
		if len(b.Ops) > 0 {
			b.complete(0)
		}
		return b.status()
	}
	second := ask(p, 9, first.Agent) // the reply is lost
	require.Equal(t, wire.ChainDone, second.Status)
	b.Forget(7)
	p = b.client(7)
	again := ask(p, 10, second.Agent)
	require.Equal(t, wire.ChainUnknown, again.Status)
	require.EqualValues(t, 2, record(t, b, 0).Version)
	require.NotEqual(t, second.Agent, again.Agent)
	p, conn, err := b.Attach(7) // a new connection of the same is another matter
	require.NoError(t, err)
	require.NotZero(t, conn)
	require.Equal(t, wire.ChainUnknown, ask(p, 11, again.Agent).Status, "its answer stays")
}

// Checksums are computed of what changed, not by each chain that looks.
func TestAgentComparesAreCheap(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	compare := func(seq uint64, version uint64) wire.ChainStatus {
		r := wire.ChainRequest{Client: 7, Seq: seq, Slot: 1}
		b.Submit(0, 9, p, wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessCompare, Version: version}), 1))
		b.Turn(0)
		b.complete(0)
		return b.status().Status
	}
	for seq := range uint64(100) {
		require.Equal(t, wire.ChainDone, compare(seq+1, 0))
	}
	require.EqualValues(t, 1, b.Slots.sums)
	b.write(0, p, 101, 1, 0)
	b.complete(0)
	b.status()
	require.Equal(t, wire.ChainDone, compare(102, 1))
	require.Equal(t, wire.ChainDiffers, compare(103, 0))
	require.EqualValues(t, 1, b.Slots.sums, "the agent knows what it wrote")

	// Another client writes, and dies in the middle of it.
	cur, err := b.Slots.read(1)
	require.NoError(t, err)
	dst := b.Slots.mem[b.Slots.CopyOff(1, 1-cur.Which):][:b.Slots.CopyStride()]
	memory.Encode(dst, 2, []byte("two"))
	dst[memory.HeaderSize] ^= 1
	require.Equal(t, wire.ChainDone, compare(104, 1), "the change has not happened")
	dst[memory.HeaderSize] ^= 1
	require.Equal(t, wire.ChainDone, compare(105, 2), "now it has")
	require.Equal(t, wire.ChainDone, compare(106, 2))
	require.EqualValues(t, 3, b.Slots.sums)
}
