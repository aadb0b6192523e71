package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// READs of what lies together at both ends are one request, and no others.
func TestReadsAreJoined(t *testing.T) {
	first := Op{Kind: OpRead, Off: 64, At: 128, N: 16}
	for name, v := range map[string]struct {
		before  Op
		off, at int
		joined  bool
	}{
		"together":        {first, 80, 144, true},
		"elsewhere there": {first, 88, 144, false},
		"elsewhere here":  {first, 80, 152, false},
		"behind a WRITE":  {Op{Kind: OpWrite, Off: 64, At: 128, N: 16}, 80, 144, false},
	} {
		w := Work{Ops: []Op{v.before}}
		w.read(v.off, v.at, 8)
		if v.joined {
			require.Equal(t, []Op{{Kind: OpRead, Off: 64, At: 128, N: 24}}, w.Ops, name)
		} else {
			require.Equal(t, []Op{v.before, {Kind: OpRead, Off: v.off, At: v.at, N: 8}}, w.Ops, name)
		}
	}
	var w Work
	w.read(64, 128, 8)
	require.Len(t, w.Ops, 1)
}

// shape is what the requests of a list are.
func shape(ops []Op) (kinds []OpKind) {
	for _, o := range ops {
		kinds = append(kinds, o.Kind)
	}
	return kinds
}

// What a holder reads with the lock command it reads with it, and behind its result only where
// the last lock command has failed.
func TestListsOfAcquire(t *testing.T) {
	alone := []OpKind{OpCmpSwap}
	for name, v := range map[string]struct {
		m     Acquire
		lists [][]OpKind
	}{
		"lock alone, and readers":    {Acquire{}, [][]OpKind{{OpCmpSwap, OpRead}}},
		"with data":                  {Acquire{Data: true}, [][]OpKind{{OpCmpSwap, OpRead}}}, // one READ of both
		"with a token":               {Acquire{Token: true}, [][]OpKind{{OpCmpSwap, OpFetchAdd, OpRead}}},
		"of a reader":                {Acquire{Reading: true}, [][]OpKind{alone}},
		"of a reader, with data":     {Acquire{Reading: true, Data: true}, [][]OpKind{{OpCmpSwap, OpRead}}},
		"behind a miss":              {Acquire{Data: true, Work: Work{Missed: true}}, [][]OpKind{alone, {OpRead}}},
		"of a reader, behind a miss": {Acquire{Reading: true, Data: true, Work: Work{Missed: true}}, [][]OpKind{{OpCmpSwap, OpRead}}},
	} {
		b := newBench()
		m := v.m
		m.Tags = &memory.Tagger{Owner: 1, Epoch: 1}
		lists, end, err := b.lists(t, &m)
		require.NoError(t, err, name)
		require.Equal(t, Done, end)
		var got [][]OpKind
		for _, ops := range lists {
			got = append(got, shape(ops))
		}
		require.Equal(t, v.lists, got, name)
		require.Equal(t, m.Grant.tag, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
		require.False(t, m.Missed, name)
		require.Equal(t, Counts{Tries: 1, Acquired: 1}, m.Count, name)
		if m.Token {
			require.EqualValues(t, 1, m.Grant.Token)
		}
		if m.Data {
			cur, err := m.Decode()
			require.NoError(t, err)
			require.True(t, cur.Whole)
		}
		v, err := m.Step()
		require.NoError(t, err)
		require.Equal(t, Done, v, "it has the lock")
	}
}

// A lock command that fails is counted, as are looks at readers.
func TestCountsOfAcquire(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(2, 1, 1))
	m := &Acquire{Tags: tags, Tries: 2}
	_, err := b.run(t, m)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.Equal(t, Counts{Tries: 2, Failed: 2}, m.Count)
	require.True(t, m.Missed)
	storeWord(b.s.mem, b.s.l.LockOff(0), 0)
	storeWord(b.s.mem, b.s.l.ReadersOff(0), 4)
	m = &Acquire{Tags: tags, Tries: 3}
	_, err = b.run(t, m)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.Equal(t, Counts{Tries: 1, Acquired: 1, Waits: 3}, m.Count)
	storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(2, 1, 1))
	s := &AcquireShared{Acquire: Acquire{Tags: tags, Tries: 2}}
	_, err = b.run(t, s)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.Equal(t, Counts{Tries: 2, Failed: 2}, s.Count)
	require.EqualValues(t, 4, memory.LoadWord(b.s.mem, b.s.l.ReadersOff(0)), "of the other reader alone")
	storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(2, 1, memory.ReadingTag|1))
	s = &AcquireShared{Acquire: Acquire{Tags: tags, Tries: 1}}
	_, err = b.run(t, s)
	require.NoError(t, err)
	require.Equal(t, Counts{Tries: 1, Acquired: 1}, s.Count)
	_, err = b.run(t, &Releaser{Grant: s.Grant, Owner: 1})
	require.NoError(t, err, "others are readers too")
	require.EqualValues(t, 4, memory.LoadWord(b.s.mem, b.s.l.ReadersOff(0)))
	_, err = b.run(t, &Releaser{Grant: s.Grant, Owner: 1})
	require.ErrorIs(t, err, ErrLost, "its bit is not there")
}

// A tag of another holder is not the lost one's, though it has all its bits.
func TestLostToATagWithTheSameBits(t *testing.T) {
	b := newBench()
	m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}}
	_, err := b.run(t, m)
	require.NoError(t, err)
	other := memory.MakeTag(3, 1, 1)
	require.Equal(t, m.Grant.tag, other&m.Grant.tag)
	storeWord(b.s.mem, b.s.l.LockOff(0), other)
	r := &Releaser{Grant: m.Grant, Owner: 1}
	_, err = b.run(t, r)
	require.ErrorIs(t, err, ErrLost)
	require.EqualValues(t, 1, r.Count.Lost)
}

// Each way of reading is counted for itself.
func TestCountsOfReads(t *testing.T) {
	b := newBench()
	for form, want := range map[Protocol]Counts{
		ProtocolRead:       {Read: 1},
		ProtocolReadChain:  {ReadChain: 1, Tries: 1, Acquired: 1},
		ProtocolReadLocked: {ReadHeld: 1, Tries: 1, Acquired: 1},
	} {
		m := &Reader{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true, Reading: true}, Protocol: form, Accesses: readsOf(0)}
		_, err := b.run(t, m)
		require.NoError(t, err)
		require.Equal(t, want, m.Count, "form %d", form)
	}
	m := &changer{Chain: Chain{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true}, Accesses: []Access{{Kind: wire.AccessWrite}}}, Allowed: func() error { return nil }}
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, Counts{TwoStep: 1, Tries: 1, Acquired: 1}, m.Count)
}
