package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// ask sends a request for a turn, or the end of one, in a buffer of its own.
func (b *agentBench) ask(peer int32, seq uint64, slot int, of uint64) {
	b.Submit(0, b.next, peer, wire.AppendTurn(nil, b.peers[peer].id, seq, uint32(slot), 0, of))
	require.Equal(b.t, []int32{b.next}, b.Free, "it occupies no buffer while it waits")
	b.Free = b.Free[:0]
	b.Turn(0)
}

// words completes the broker's list with the words that it finds, and returns the word
// that it swaps in last.
func (b *agentBench) words(old ...uint64) uint64 {
	require.Len(b.t, b.Broker.Lists, 1)
	l := b.Broker.Lists[0]
	b.Broker.Lists = b.Broker.Lists[:0]
	b.TurnResult(0, l.Index, old)
	b.Turn(0)
	return l.Ops[l.N-1].Swap
}

// A client asks and gets the word that the lock is reserved with, and so does the next one
// when it is done. Requests that come again get the reply again, and no second turn.
func TestTurnsByTheAgent(t *testing.T) {
	b := newAgentBench(t, 4)
	one, two := b.client(1), b.client(2)
	b.ask(one, 1, 3, 0)
	b.ask(one, 1, 3, 0)
	require.Empty(t, b.Outs)
	word := b.words(0)
	require.EqualValues(t, memory.AgentOwner, word>>48)
	for range 2 {
		r := b.status()
		require.Equal(t, wire.ChainDone, r.Status)
		require.EqualValues(t, 1, r.Seq)
		require.Equal(t, word, r.Ops.Next().Version)
		b.ask(one, 1, 3, 0)
	}
	b.Outs = b.Outs[:0]
	b.ask(two, 1, 3, 0)
	b.ask(two, 2, 3, 0)
	require.Empty(t, b.Broker.Lists)
	b.ask(one, 2, 3, 1)
	require.Empty(t, b.Outs, "the end has no reply")
	next := b.words(0, 0)
	require.NotEqual(t, word, next)
	r := b.status()
	require.Equal(t, next, r.Ops.Next().Version)
	require.EqualValues(t, 2, b.Stats.Turns)

	b.Forget(2) // with a turn, and a request that waits
	b.Turn(0)
	require.Zero(t, b.words(next))
	require.True(t, b.Broker.Idle())
	require.Empty(t, b.Outs)

	b.ask(one, 4, 4, 0)
	require.Equal(t, wire.ChainRefused, b.status().Status, "there is no such slot")
	require.True(t, b.Broker.Idle())
}

// A client gets no turn if its place for the reply has another request by now.
func TestTurnOfNobody(t *testing.T) {
	b := newAgentBench(t, 4)
	one := b.client(1)
	b.ask(one, 1, 0, 0)
	b.ask(one, 5, 1, 0) // in the same place, of a window of four
	first := b.Broker.Lists[0]
	b.Broker.Lists = b.Broker.Lists[1:]
	b.TurnResult(0, first.Index, []uint64{0})
	b.Turn(0)
	require.Empty(t, b.Outs)
	require.Len(t, b.Broker.Lists, 2)
	require.Equal(t, first.Ops[0].Swap, b.Broker.Lists[1].Ops[0].Compare, "it is taken back")
	require.Zero(t, b.Stats.Turns)
}

// A client that takes back a request which waits gets a reply to it.
func TestTurnIsNotWanted(t *testing.T) {
	b := newAgentBench(t, 4)
	one, two := b.client(1), b.client(2)
	b.ask(one, 1, 3, 0)
	require.NotZero(t, b.words(0))
	require.EqualValues(t, 1, b.status().Client)
	b.ask(two, 1, 3, 0)
	b.ask(two, 2, 3, 1)
	r := b.status()
	require.EqualValues(t, 2, r.Client)
	require.EqualValues(t, 1, r.Seq)
	require.Equal(t, wire.ChainNotAcquired, r.Status)
	require.Zero(t, b.Broker.Waiting(3))
}

// A client keeps its turn when it goes on with other requests, of which one takes the place of the
// request for the turn.
func TestTurnStays(t *testing.T) {
	b := newAgentBench(t, 4)
	one := b.client(1)
	b.ask(one, 1, 3, 0)
	require.NotZero(t, b.words(0))
	require.EqualValues(t, 1, b.status().Seq)
	b.ask(one, 5, 2, 0)
	require.Len(t, b.Broker.Lists, 1, "for the other slot")
	require.EqualValues(t, 2, b.Broker.Lists[0].Slot)
}

// A client that goes on asking, and waits for no reply, has as many requests waiting as
// it has places for replies: a request is withdrawn when another one takes its place.
func TestTurnsOfOneClientAreBounded(t *testing.T) {
	b := newAgentBench(t, 4)
	one, two := b.client(1), b.client(2)
	b.ask(two, 1, 3, 0)
	b.ask(two, 2, 3, 0)
	require.NotZero(t, b.words(0), "the lock is reserved for two")
	b.Outs = b.Outs[:0]
	for seq := range uint64(100) {
		b.ask(one, 1+seq, int(seq%4), 0)
	}
	waiting := 0
	for slot := range uint32(4) {
		waiting += b.Broker.Waiting(slot)
	}
	require.Equal(t, b.Limits.Window+1, waiting, "of one as many as its window, and one of two")
	require.Empty(t, b.Outs)
}

// In its turn a client swaps what the lock is reserved with for its tag, and if that is
// not there any more it has no lock and leaves the others alone.
func TestTurnIsTaken(t *testing.T) {
	b := newBench()
	reserved := memory.MakeTag(memory.AgentOwner, 1, 5)
	for _, word := range []uint64{reserved, 0, memory.MakeTag(memory.AgentOwner, 1, 7), memory.MakeTag(2, 1, 1)} {
		storeWord(b.s.mem, b.s.l.LockOff(0), word)
		m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, From: reserved, Data: true}
		_, err := b.run(t, m)
		if word == reserved {
			require.NoError(t, err)
			require.Equal(t, m.Grant.tag, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
			continue
		}
		require.ErrorIs(t, err, ErrTurnOver)
		require.Equal(t, word, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
	}
}

// A client that was given a turn by an agent which has failed may come late, when another
// one has the lock for a chain. That is no reservation, even if the two count alike and their
// tags begin at the same epoch: the client must not get it.
func TestTurnDoesNotOpenALock(t *testing.T) {
	before, now := newAgentBench(t, 4), newAgentBench(t, 4)
	before.ask(before.client(1), 1, 3, 0)
	word := before.words(0)
	now.write(0, now.client(1), 1, 3, 0)
	held := now.Ops[0].B
	require.Equal(t, memory.TagIdentity(word), memory.TagIdentity(held))
	b := newBenchOf(memory.Layout{Slots: 4, Size: 16})
	storeWord(b.s.mem, b.s.l.LockOff(3), held)
	_, err := b.run(t, &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, From: word, Grant: Grant{Slot: 3}})
	require.ErrorIs(t, err, ErrTurnOver)
	require.Equal(t, held, memory.LoadWord(b.s.mem, b.s.l.LockOff(3)))
}

// That is so however often the agent has counted.
func TestReservationsAreMarked(t *testing.T) {
	s := newAgentSimSlots(memory.Layout{Slots: 1, Size: 8})
	for _, n := range []uint32{0, 1, memory.ReservedTag, memory.ReadingTag, 1<<32 - 1} {
		require.NotZero(t, s.reservation(n)&memory.ReservedTag)
		for _, reading := range []bool{false, true} {
			require.Zero(t, s.tag(n, reading)&memory.ReservedTag)
			require.Equal(t, reading, s.tag(n, reading)&memory.ReadingTag != 0)
		}
	}
}

// What an agent reserved before it failed the next one takes back.
func TestReservationOfAnAgentBefore(t *testing.T) {
	b := newBench()
	storeWord(b.s.mem, b.s.l.LockOff(1), memory.MakeTag(memory.AgentOwner, 9, 5))
	_, err := b.run(t, AgentRecovery(b.s.mem))
	require.NoError(t, err)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(1)))
	require.Equal(t, 500*time.Millisecond, reservationTimeout, "as the comment of Fair has it")
}

// A client that finds a lock in the agent's hands, without having asked for a turn, notes
// it: its pauses must be shorter than the time for which the agent lets the lock go.
func TestHandOffIsNoticed(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	for _, start := range []func() Machine{
		func() Machine { return &Acquire{Tags: tags, Tries: 1} },
		func() Machine { return &AcquireShared{Acquire: Acquire{Tags: tags, Tries: 1}} },
		func() Machine {
			return &Reader{Acquire: Acquire{Tags: tags, Tries: 1, Reading: true}, Accesses: readsOf(0), Protocol: ProtocolReadChain}
		},
		func() Machine {
			return &Reader{Acquire: Acquire{Tags: tags, Tries: 1, Reading: true, Data: true}, Accesses: readsOf(0), Protocol: ProtocolReadLocked}
		},
	} {
		for _, owner := range []uint16{2, memory.AgentOwner} {
			storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(owner, 1, 5))
			m := start()
			_, err := b.run(t, m)
			require.ErrorIs(t, err, ErrNotAcquired, "%T", m)
			require.Equal(t, owner == memory.AgentOwner, m.Base().HandedOn, "%T", m)
		}
	}
	var w Work
	w.heldBy(memory.MakeTag(memory.AgentOwner, 1, 5))
	w.heldBy(memory.MakeTag(2, 1, 5))
	require.True(t, w.HandedOn, "whatever it finds afterwards")
	require.Equal(t, []time.Duration{200 * time.Millisecond, 10 * time.Millisecond}, []time.Duration{turnRun, TurnGap}, "as the comment of Fair has it")
}
