package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// submit sends a request in a buffer that nothing else is in.
func (b *agentBench) submit(now time.Duration, peer int32, r wire.ChainRequest, accesses ...wire.Access) {
	r.Client = b.peers[peer].id
	msg := r.AppendTo(nil)
	for _, a := range accesses {
		msg = wire.AppendAccess(msg, a)
	}
	b.Submit(now, b.next, peer, wire.SealMessage(msg, len(accesses)))
	b.next++
	b.Turn(now)
}

// A chain that is not possible is refused, and one at each bound is executed.
func TestAgentRefuses(t *testing.T) {
	read, write := wire.Access{Kind: wire.AccessRead}, wire.Access{Kind: wire.AccessWrite}
	compare := wire.Access{Kind: wire.AccessCompare}
	data := func(a wire.Access, n int) wire.Access { a.Data = make([]byte, n); return a }
	of := func(a wire.Access, n uint16) wire.Access { a.Record = n; return a }
	for name, v := range map[string]struct {
		request  wire.ChainRequest
		accesses []wire.Access
		want     wire.ChainStatus
	}{
		"last slot":             {wire.ChainRequest{Slot: 3}, []wire.Access{read}, wire.ChainDone},
		"no such slot":          {wire.ChainRequest{Slot: 4}, []wire.Access{read}, wire.ChainRefused},
		"last record":           {wire.ChainRequest{}, []wire.Access{of(read, 1)}, wire.ChainDone},
		"no such record":        {wire.ChainRequest{}, []wire.Access{of(read, 2)}, wire.ChainRefused},
		"a whole record":        {wire.ChainRequest{}, []wire.Access{data(write, 16)}, wire.ChainDone},
		"more than a record":    {wire.ChainRequest{}, []wire.Access{data(write, 17)}, wire.ChainRefused},
		"a READ with data":      {wire.ChainRequest{}, []wire.Access{data(read, 1)}, wire.ChainRefused},
		"a compare with data":   {wire.ChainRequest{}, []wire.Access{data(compare, 1)}, wire.ChainRefused},
		"shared":                {wire.ChainRequest{Shared: true}, []wire.Access{read, compare}, wire.ChainDone},
		"shared, and writes":    {wire.ChainRequest{Shared: true}, []wire.Access{write}, wire.ChainRefused},
		"READs for a reply":     {wire.ChainRequest{}, slices.Repeat([]wire.Access{read}, 7), wire.ChainDone},
		"READs for no reply":    {wire.ChainRequest{}, slices.Repeat([]wire.Access{read}, 8), wire.ChainRefused},
		"compares for a reply":  {wire.ChainRequest{}, slices.Repeat([]wire.Access{compare}, 14), wire.ChainDone},
		"compares for no reply": {wire.ChainRequest{}, slices.Repeat([]wire.Access{compare}, 15), wire.ChainRefused},
		"compared with another": {wire.ChainRequest{}, []wire.Access{{Kind: wire.AccessCompare, Version: 1}, write}, wire.ChainDiffers},
	} {
		b := newAgentBenchOf(t, 8, memory.Layout{Slots: 4, Size: 16, Records: 2})
		v.request.Seq = 1
		b.submit(0, b.client(7), v.request, v.accesses...)
		if v.want != wire.ChainRefused {
			b.complete(0)
		}
		r := b.status()
		require.Equal(t, v.want, r.Status, name)
		want := AgentStats{Refused: 1}
		if v.want != wire.ChainRefused {
			require.Equal(t, len(v.accesses), r.Ops.N, name)
			want = AgentStats{Accepted: 1, Tries: 1, Done: 1}
		}
		if v.want == wire.ChainDiffers {
			want.Done, want.Differs = 0, 1
			require.Zero(t, record(t, b, 0).Version, "nothing was written")
		}
		require.Equal(t, want, b.Stats, name)
		require.Zero(t, b.Taken+b.Unlocking)
		require.Len(t, b.Free, 1)
	}
}

// A chain waits until its deadline, and no longer than the agent lets any wait.
func TestAgentDeadlines(t *testing.T) {
	for deadline, want := range map[uint32]time.Duration{0: time.Millisecond, 500: 500 * time.Microsecond, 5000: time.Millisecond} {
		b := newAgentBench(t, 8)
		p := b.client(7)
		b.submit(0, p, wire.ChainRequest{Seq: 1, Deadline: deadline})
		b.submit(0, p, wire.ChainRequest{Seq: 2, Deadline: deadline}) // waits for the first one
		now := time.Duration(0)
		for len(b.Outs) < 2 {
			require.Less(t, now, time.Second)
			if len(b.Ops) > 0 {
				b.done(now, 99)
				continue
			}
			now = b.Rings()
			b.Turn(now)
		}
		require.Equal(t, want, now)
		require.EqualValues(t, 2, b.Stats.NotAcquired)
	}
}

// The pauses between lock commands double, to the largest one; up to a half of each is random.
func TestAgentPauses(t *testing.T) {
	b := newAgentBench(t, 8)
	b.submit(0, b.client(7), wire.ChainRequest{Seq: 1, Deadline: 500})
	now := time.Duration(0)
	b.submit(0, b.client(8), wire.ChainRequest{Seq: 1, Deadline: 500}) // waits for the first one
	for _, most := range []time.Duration{10, 20, 40, 40, 40} {
		b.done(now, 99)
		require.Empty(t, b.Ops)
		require.Empty(t, b.Outs)
		at := b.Rings()
		require.GreaterOrEqual(t, at-now, most*time.Microsecond/2)
		require.LessOrEqual(t, at-now, most*time.Microsecond)
		b.Turn(at - 1)
		require.Empty(t, b.Ops, "not before")
		now = at
		b.Turn(now)
		require.Len(t, b.Ops, 1)
	}
	require.Equal(t, 500*time.Microsecond, b.Rings(), "while the device is at work only deadlines count")
}

// A chain that has waited for another one is eager as it begins, and has another tag.
func TestAgentIsEagerLater(t *testing.T) {
	b := newAgentBench(t, 8)
	b.Limits.Eager = 5 * time.Microsecond
	r := wire.ChainRequest{Seq: 1, Shared: true}
	b.submit(0, b.client(7), r)
	b.submit(0, b.client(8), wire.ChainRequest{Seq: 1})
	tag := b.jobs[0].tag
	const later = 100 * time.Microsecond
	b.done(later, 0)
	b.done(later, tag)
	b.done(later, 0) // the lock is free for a moment
	for range 3 {
		require.Equal(t, OpCmpSwap, b.Ops[0].Kind)
		require.NotEqual(t, tag, b.Ops[0].B)
		tag = b.Ops[0].B
		b.done(later, 99)
		require.Len(t, b.Ops, 1)
	}
	b.done(later+b.Limits.Eager, 99)
	require.Empty(t, b.Ops)
}

// A chain that begins before its deadline tries once, though the lock was left free for a moment.
func TestAgentTriesOnce(t *testing.T) {
	b := newAgentBench(t, 8)
	b.submit(0, b.client(7), wire.ChainRequest{Seq: 1, Shared: true})
	b.submit(0, b.client(8), wire.ChainRequest{Seq: 1, Deadline: 500})
	tag := b.jobs[0].tag
	b.done(0, 0)
	b.done(0, tag)
	require.Equal(t, OpRead, b.Ops[0].Kind)
	b.status()
	const late = 600 * time.Microsecond
	b.done(late, 0)
	require.Equal(t, OpCmpSwap, b.Ops[0].Kind)
	b.done(late, 99)
	r := b.status()
	require.Equal(t, wire.ChainNotAcquired, r.Status)
	require.EqualValues(t, 1, r.Tries)
}

// One lock serves sixteen chains, and none of which the time is over.
func TestAgentCarriesSoMany(t *testing.T) {
	l := AgentLimits{Peers: 4, Window: 8, Queue: 100, Receives: 100, Message: 256, MaxWait: time.Millisecond, MinPause: time.Microsecond, MaxPause: time.Microsecond}
	b := &agentBench{Agent: NewAgent(l, newAgentSimSlots(memory.Layout{Slots: 4, Size: 16}), make([]byte, 4*9*256), 1), t: t}
	for id := range uint64(4) {
		p := b.client(1 + id)
		for seq := range uint64(8) {
			b.submit(0, p, wire.ChainRequest{Seq: 1 + seq})
		}
	}
	b.done(0, 0)
	require.EqualValues(t, 15, b.Stats.Carried)
	require.Len(t, b.Outs, 16)
	for range 16 {
		require.EqualValues(t, 1, b.status().Tries)
	}

	b = newAgentBench(t, 8)
	p := b.client(7)
	b.submit(0, p, wire.ChainRequest{Seq: 1, Deadline: 500})
	b.submit(0, p, wire.ChainRequest{Seq: 2, Deadline: 100})
	b.submit(0, p, wire.ChainRequest{Seq: 3, Deadline: 101})
	require.Equal(t, 100*time.Microsecond, b.Rings())
	b.Result(100*time.Microsecond, 0, []uint64{0}) // before the agent looks at its clock
	require.Equal(t, []uint64{1, 3}, []uint64{b.status().Seq, b.status().Seq})
	b.Turn(100 * time.Microsecond)
	r := b.status()
	require.EqualValues(t, 2, r.Seq)
	require.Equal(t, wire.ChainNotAcquired, r.Status)
}

// A reply has the data of what was read, and of nothing else.
func TestAgentRepliesHaveWhatWasRead(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	compare := func(version uint64) wire.Access { return wire.Access{Kind: wire.AccessCompare, Version: version} }
	read, write := wire.Access{Kind: wire.AccessRead}, wire.Access{Kind: wire.AccessWrite, Data: []byte("data")}
	seq := uint64(0)
	for _, v := range []struct {
		chain []wire.Access
		want  []wire.Access // versions and data
	}{
		{[]wire.Access{read, write, read, compare(0)}, []wire.Access{{Version: 0}, {Version: 1}, {Version: 1, Data: []byte("data")}, {Version: 1}}},
		{[]wire.Access{compare(1), read}, []wire.Access{{Version: 1}, {Version: 1, Data: []byte("data")}}},
		{[]wire.Access{compare(0), write, read}, []wire.Access{{Version: 1}, {Version: 1}, {Version: 1, Data: []byte("data")}}},
	} {
		seq++
		b.submit(0, p, wire.ChainRequest{Seq: seq}, v.chain...)
		b.complete(0)
		r := b.status()
		for k, want := range v.want {
			got := r.Ops.Next()
			require.Equal(t, v.chain[k].Kind, got.Kind)
			require.Equal(t, want.Version, got.Version, "chain %d, operation %d", seq, k)
			require.Equal(t, string(want.Data), string(got.Data), "chain %d, operation %d", seq, k)
		}
	}
}

// What cannot be decoded has no reply, though it says from which client it comes.
func TestAgentMalformed(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	r := wire.ChainRequest{Client: 7, Seq: 1}
	b.Submit(0, 0, p, wire.SealMessage(r.AppendTo(nil), 1))
	require.EqualValues(t, 1, b.Stats.Malformed)
	require.Equal(t, []int32{0}, b.Free)
	require.Empty(t, b.Outs)
	b.Turn(0)
	require.Empty(t, b.Ops)
}

// What a client leaves behind counts for no other one.
func TestAgentForgetsOne(t *testing.T) {
	b := newAgentBench(t, 8)
	one, two := b.client(1), b.client(2)
	b.submit(0, one, wire.ChainRequest{Seq: 1})
	b.submit(0, two, wire.ChainRequest{Seq: 1})
	b.Forget(2)
	require.Equal(t, 1, b.Taken)
	require.Equal(t, []int{1, 0}, []int{b.peers[one].inside, b.peers[two].inside})
	require.EqualValues(t, 1, b.Stats.NotAcquired)
	require.Len(t, b.Free, 1)
}

// A client that takes no replies gets no more of them.
func TestAgentRepliesAreBounded(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.submit(0, p, wire.ChainRequest{Seq: 1})
	b.complete(0)
	for range 2 * b.Limits.MaxSending() {
		b.submit(0, p, wire.ChainRequest{Seq: 1})
		b.next--
	}
	require.Len(t, b.Outs, b.Limits.MaxSending())
	require.EqualValues(t, b.Limits.MaxSending()+1, b.Stats.Unsent)
	require.EqualValues(t, 2*b.Limits.MaxSending(), b.Stats.Repeated)
	require.Equal(t, wire.ChainDone, b.status().Status)
	b.submit(0, p, wire.ChainRequest{Seq: 1})
	require.Len(t, b.Outs, b.Limits.MaxSending())
}

// A copy of a chain that is at work has no reply of its own, and one that is older than those
// that are remembered has one at a time.
func TestAgentCopies(t *testing.T) {
	b := newAgentBench(t, 8)
	p := b.client(7)
	b.submit(0, p, wire.ChainRequest{Seq: 5})
	b.submit(0, p, wire.ChainRequest{Seq: 5})
	require.Empty(t, b.Outs)
	require.Len(t, b.Free, 1)
	require.EqualValues(t, 1, b.Stats.Repeated)
	for n := range 3 {
		b.submit(0, p, wire.ChainRequest{Seq: 1})
		require.EqualValues(t, n+1, b.Stats.Unknown)
	}
	require.Len(t, b.Outs, 1)
	r := b.status()
	require.Equal(t, wire.ChainUnknown, r.Status)
	require.EqualValues(t, 1, r.Seq)
	b.complete(0)
	require.EqualValues(t, 5, b.status().Seq)
}

// There is a place for each client, and for another one when it is forgotten.
func TestAgentPlaces(t *testing.T) {
	b := newAgentBench(t, 8)
	for id := range uint64(4) {
		require.EqualValues(t, id, b.client(10+id))
	}
	_, _, err := b.Attach(20)
	require.ErrorIs(t, err, memory.ErrConfig)
	b.Forget(20)
	_, _, err = b.Attach(20)
	require.ErrorIs(t, err, memory.ErrConfig)
	_, before, err := b.Attach(12)
	require.NoError(t, err)
	b.Forget(12)
	p, conn, err := b.Attach(20)
	require.NoError(t, err)
	require.EqualValues(t, 2, p)
	require.Greater(t, conn, before)
}

// No client knows the agent as 0, which means any.
func TestAgentIdentities(t *testing.T) {
	b := newAgentBench(t, 8)
	seen := map[uint32]bool{0: true}
	b.id = -2 * 0x9e3779b9 & (1<<32 - 1) // the second one would be 0
	for id := range uint64(4) {
		identity := b.peers[b.client(id)].identity
		require.False(t, seen[identity])
		seen[identity] = true
	}
}
