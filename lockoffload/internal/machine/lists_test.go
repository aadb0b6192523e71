package machine

import (
	"testing"
	"time"

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
		require.Equal(t, m.Token, m.Grant.Token == 1, name)
		require.Equal(t, !m.Token, m.Grant.Token == 0, name)
		if m.Data {
			cur, err := m.Decode()
			require.NoError(t, err)
			require.True(t, cur.Whole)
		}
		v, err := m.Step()
		require.NoError(t, err)
		require.Equal(t, Done, v, "it has the lock")
		require.Equal(t, Counts{Tries: 1, Acquired: 1}, m.Count, name)
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

// A caller that gives up a lock when it has it gives it back, once.
func TestUndoOfHeld(t *testing.T) {
	for _, owner := range []uint16{1, 520} { // the second one has no bit among the readers
		for _, shared := range []bool{false, true} {
			b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 520})
			lock := Acquire{Tags: &memory.Tagger{Owner: owner, Epoch: 1}}
			var m Machine = &lock
			if shared {
				m = &AcquireShared{Acquire: lock}
			}
			v, err := m.Undo()
			require.NoError(t, err)
			require.Equal(t, Done, v, "it has not begun")
			_, err = b.run(t, m)
			require.NoError(t, err)
			v, err = m.Undo()
			require.NoError(t, err)
			require.Equal(t, Last, v)
			for x := (&simList{w: m.Base(), ops: m.Base().Ops}); !b.s.execute(x); {
			}
			require.NoError(t, m.Base().Settled())
			require.NoError(t, b.s.free())
			v, err = m.Undo()
			require.NoError(t, err)
			require.Equal(t, Done, v)
		}
	}
}

// A holder commits as often as it likes, and gives nothing back with that.
func TestCommitUnderLock(t *testing.T) {
	b := newBench()
	for version := range uint64(3) {
		m := &Once{}
		b.prepare(m)
		m.Load(1)
		_, err := b.run(t, m)
		require.NoError(t, err)
		old, err := m.Decode()
		require.NoError(t, err)
		require.Equal(t, version, old.Version)
		w := &Once{}
		b.prepare(w)
		w.L.Stage(w.Next(), &old)
		w.L.Put(w.Next(), 1, version+1, []byte{byte(version)})
		mem := w.Mem
		w.Commit(1, &old)
		require.True(t, w.Wrote)
		ops := w.Ops
		require.Equal(t, []OpKind{OpWrite}, shape(ops))
		for x := (&simList{w: &Work{Mem: mem}, ops: ops}); !b.s.execute(x); {
		}
		require.NoError(t, w.Settled())
		now, err := b.s.current(1)
		require.NoError(t, err)
		r, err := b.s.l.Record(&now, 1)
		require.NoError(t, err)
		require.Equal(t, memory.Content{Version: version + 1, Data: []byte{byte(version)}}, r)
	}
}

// A record that cannot be, in copies that are whole, is an error of what looks at it, which
// writes nothing, gives its lock back and has no data. So are copies that are not whole.
func TestDamagedSlot(t *testing.T) {
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	for name, damage := range map[string]func(b *bench){
		"copies": func(b *bench) {
			b.s.mem[b.s.l.CopyOff(0, 0)] ^= 1
			b.s.mem[b.s.l.CopyOff(0, 1)] ^= 1
		},
		"record": func(b *bench) {
			for k := range 2 {
				c := b.s.mem[b.s.l.CopyOff(0, k):][:b.s.l.CopyStride()]
				storeWord(c, memory.HeaderSize+8, 17) // the length of the first record
				b.s.l.Seal(c, uint64(k))
			}
		},
	} {
		for _, form := range []Protocol{ProtocolRead, ProtocolReadChain, ProtocolReadLocked} {
			b := newBench()
			damage(b)
			m := &Reader{Acquire: Acquire{Tags: tags, Data: true, Reading: true}, Protocol: form, Accesses: readsOf(0)}
			m.Accesses[0].Version, m.Accesses[0].Data = 7, []byte("?")
			_, err := b.run(t, m)
			require.ErrorIs(t, err, memory.ErrRecord, "%s %d", name, form)
			require.Equal(t, readsOf(0)[0].Kind, m.Accesses[0].Kind)
			require.Equal(t, "?", string(m.Accesses[0].Data), "%s %d", name, form)
			require.NoError(t, b.s.free())
		}
		b := newBench()
		damage(b)
		m := &changer{Chain: Chain{Acquire: Acquire{Tags: tags, Data: true}, Accesses: append(readsOf(0), Access{Kind: wire.AccessWrite, Record: 1})}, Allowed: func() error { return nil }}
		ops, err := b.run(t, m)
		require.ErrorIs(t, err, memory.ErrRecord, name)
		require.Zero(t, writes(ops))
		require.NoError(t, b.s.free())
	}
}

// A READ may take as long as it likes where no lease bounds it.
func TestLateReads(t *testing.T) {
	for _, v := range []struct {
		inTime, took time.Duration
		torn         uint64
	}{{0, time.Hour, 0}, {time.Second, time.Second, 0}, {time.Second, time.Second + 1, 1}} {
		b := newBench()
		m := b.prepare(&Reader{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true, Reading: true}, Accesses: readsOf(0), InTime: v.inTime}).(*Reader)
		_, err := m.Step()
		require.NoError(t, err)
		for x := (&simList{w: m.Base(), ops: m.Ops}); !b.s.execute(x); {
		}
		m.Took = v.took
		_, err = m.Step()
		require.NoError(t, err)
		require.Equal(t, v.torn, m.Count.Torn, "%v of %v", v.took, v.inTime)
	}
	for lease, want := range map[time.Duration]time.Duration{
		-1: 100 * time.Millisecond, 0: 100 * time.Millisecond, 200 * time.Millisecond: 50 * time.Millisecond, time.Minute: 100 * time.Millisecond,
	} {
		require.Equal(t, want, ReadTime(lease), "lease of %v", lease)
	}
}
