package machine

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Looks at readers are tries too: a client with limited tries does not keep others out for
// as long as others read.
func TestTriesEndUnderReaders(t *testing.T) {
	b := newBench()
	storeWord(b.s.mem, b.s.l.ReadersOff(0), 4)
	m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Tries: 3}
	_, err := b.run(t, m)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.Equal(t, 3, m.Tried)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}

// Each record has a version of its own, with any writer.
func TestVersionsOfRecords(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	allowed := func() error { return nil }
	change := func(n int) uint64 {
		m := update(Acquire{Tags: tags, Data: true}, []int{n}, allowed, func([][]byte) ([][]byte, error) { return [][]byte{{1}}, nil })
		_, err := b.run(t, m)
		require.NoError(t, err)
		return m.Version
	}
	write := func(n int) uint64 {
		m := &changer{Chain: Chain{Acquire: Acquire{Tags: tags, Data: true}, Accesses: []Access{{Kind: wire.AccessWrite, Record: n}}}, Allowed: allowed}
		_, err := b.run(t, m)
		require.NoError(t, err)
		return m.Version
	}
	require.Equal(t, []uint64{1, 2, 1, 3, 2}, []uint64{change(1), write(1), change(0), change(1), write(0)})
	cur, err := b.s.current(0)
	require.NoError(t, err)
	for n, want := range []uint64{2, 3} {
		r, err := b.s.l.Record(&cur, n)
		require.NoError(t, err)
		require.Equal(t, want, r.Version)
	}
}

// A chain whose compare differs writes nothing, carried out from afar, and gives its lock
// back; what it read is there.
func TestChainThatDiffersWritesNothing(t *testing.T) {
	b := newBench()
	m := &changer{Chain: Chain{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true}}, Allowed: func() error { return nil }}
	m.Accesses = []Access{{Kind: wire.AccessWrite, Data: []byte("never")}, {Kind: wire.AccessCompare, Record: 1, Version: 7}, {Kind: wire.AccessRead, Data: []byte("?")}}
	ops, err := b.run(t, m)
	require.ErrorIs(t, err, ErrVersionMismatch)
	require.Zero(t, writes(ops))
	require.False(t, m.Wrote)
	require.Empty(t, m.Accesses[2].Data)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
	m.Accesses[1].Version, m.state = 0, acquireIdle
	_, err = b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, "never", string(m.Accesses[2].Data))
}

// What a chain reads is appended to the memory that its access has.
func TestChainReadsInPlace(t *testing.T) {
	b := newBench()
	m := &changer{Chain: Chain{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true}}, Allowed: func() error { return nil }}
	room := make([]byte, 0, 16)
	m.Accesses = []Access{{Kind: wire.AccessWrite, Data: []byte("data")}, {Kind: wire.AccessRead, Data: room}}
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, "data", string(m.Accesses[1].Data))
	require.Same(t, &room[:1][0], &m.Accesses[1].Data[0])
}

// What a chain reads its change gets, until it returns, and what the change says is
// written: nil leaves a record as it is, and an error, a compare that differs, or too
// much data all of them. The lock is given back.
func TestChange(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	run := func(want error, version uint64, change func([]Access) error) *changer {
		m := &changer{Chain: Chain{Acquire: Acquire{Tags: tags, Data: true}}, Allowed: func() error { return nil }, Change: change}
		m.Accesses = append(readsOf(0, 1), Access{Kind: wire.AccessWrite}, Access{Kind: wire.AccessWrite, Record: 1}, Access{Kind: wire.AccessCompare, Version: version})
		ops, err := b.run(t, m)
		require.ErrorIs(t, err, want)
		require.Equal(t, err == nil, writes(ops) > 0)
		require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
		return m
	}
	write := func(zero, one []byte) func([]Access) error {
		return func(a []Access) error {
			a[2].Data, a[3].Data = zero, one
			return nil
		}
	}
	run(nil, 0, write([]byte{5}, []byte{6}))
	run(nil, 1, write([]byte{7}, nil))
	run(ErrVersionMismatch, 1, func([]Access) error { panic("called") })
	run(memory.ErrConfig, 2, write(make([]byte, b.s.l.Size+1), nil))
	run(errChange, 2, func(a []Access) error {
		a[2].Data = []byte{8}
		return errChange
	})
	var got [][]byte
	m := run(nil, 2, func(a []Access) error {
		got = [][]byte{bytes.Clone(a[0].Data), bytes.Clone(a[1].Data)}
		return write([]byte{}, nil)(a)
	})
	require.Equal(t, [][]byte{{7}, {6}}, got)
	require.Nil(t, m.Accesses[0].Data)
	require.Equal(t, []uint64{2, 1, 3, 1, 3}, []uint64{m.Accesses[0].Version, m.Accesses[1].Version, m.Accesses[2].Version, m.Accesses[3].Version, m.Accesses[4].Version})
}

// Reads compare, in each form, and read all the same when that differs.
func TestReadsCompare(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	for _, form := range []Protocol{ProtocolRead, ProtocolReadChain, ProtocolReadLocked} {
		for version, want := range []error{nil, ErrVersionMismatch} {
			m := &Reader{Acquire: Acquire{Tags: tags, Data: true, Reading: true}, Protocol: form}
			m.Accesses = []Access{{Kind: wire.AccessCompare, Record: 1, Version: uint64(version)}, {Kind: wire.AccessRead, Version: 7, Data: []byte("?")}}
			_, err := b.run(t, m)
			require.ErrorIs(t, err, want)
			require.Zero(t, m.Accesses[0].Version)
			require.Zero(t, m.Accesses[1].Version)
			require.Empty(t, m.Accesses[1].Data)
			require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
		}
	}
}

// A read chain whose lock was taken away says so.
func TestReadChainLosesItsLock(t *testing.T) {
	b := newBench()
	m := b.prepare(&Reader{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true, Reading: true}, Accesses: readsOf(0), Protocol: ProtocolReadChain}).(*Reader)
	v, err := m.Step()
	require.NoError(t, err)
	require.Equal(t, Post, v)
	x := &simList{w: m.Base(), ops: m.Ops}
	for x.at == 0 {
		b.s.execute(x)
	}
	storeWord(b.s.mem, b.s.l.LockOff(0), 0)
	for !b.s.execute(x) {
	}
	_, err = m.Step()
	require.ErrorIs(t, err, ErrLost)
	require.EqualValues(t, 1, m.Count.Lost)
}

// Replies on a queue pair of before do not count among those of the next one, which has
// room for so many.
func TestSentOfAnOldConnection(t *testing.T) {
	b := newAgentBench(t, 8)
	p, before, err := b.Attach(7)
	require.NoError(t, err)
	b.write(0, p, 1, 0, 0)
	b.complete(0)
	require.Equal(t, 1, b.peers[p].sending)
	_, now, err := b.Attach(7)
	require.NoError(t, err)
	b.write(0, p, 1, 0, 0) // asked for again
	require.Equal(t, 1, b.peers[p].sending)
	b.Sent(p, before)
	require.Equal(t, 1, b.peers[p].sending)
	b.Sent(p, now)
	require.Zero(t, b.peers[p].sending)
}

// The device reads a reply that is sent again until that SEND completes. The client may have gone on by
// the first one: what it asks for in the same place is not executed before, and other places do not wait.
func TestRepeatedReplyKeepsItsMemory(t *testing.T) {
	b := newAgentBench(t, 8)
	p, conn, err := b.Attach(7)
	require.NoError(t, err)
	window := uint64(b.Limits.Window)
	b.write(0, p, 1, 0, 0)
	b.complete(0)
	require.Len(t, b.Outs, 1)
	b.write(0, p, 1, 0, 0)
	require.Len(t, b.Outs, 2, "it is sent again")
	at := b.Outs[1]
	sent := string(b.reply(p, at.Entry)[:at.N])
	b.Sent(p, conn)

	b.write(0, p, 1+window, 0, 0)
	require.Empty(t, b.Ops)
	require.Equal(t, sent, string(b.reply(p, at.Entry)[:at.N]))
	require.EqualValues(t, 1, b.Stats.Unsent)
	b.write(0, p, 2, 1, 0)
	b.complete(0)
	require.Equal(t, 2, b.peers[p].sending)

	b.Sent(p, conn)
	b.write(0, p, 1+window, 0, 0)
	b.complete(0)
	require.EqualValues(t, 3, b.Stats.Done)

	// On another queue pair nothing of this one is read any more.
	b.write(0, p, 2, 1, 0)
	_, _, err = b.Attach(7)
	require.NoError(t, err)
	b.write(0, p, 2+window, 1, 0)
	b.complete(0)
	require.EqualValues(t, 4, b.Stats.Done)
}
