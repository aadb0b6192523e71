package machine

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// threeWords is a record of as many, two of which most changes leave alone.
func threeWords(first, rest uint64) []byte {
	return bytes.Join([][]byte{word(first), word(rest), word(rest)}, nil)
}

func word(v uint64) []byte {
	b := make([]byte, 8)
	storeWord(b, 0, v)
	return b
}

// A holder dies when a part of its WRITE has been executed. The one after it writes what
// is the same in large parts, so that for a moment what it has written and what is left
// of the dead one's may be all of the dead one's. No reader gets that: it has not happened.
func TestPiecesOfADeadWriterAreNotCompleted(t *testing.T) {
	const dead, before, after = 77, 2, 88
	torn := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		b := newBenchOf(memory.Layout{Slots: 1, Size: 24, Clients: 4})
		b.s.rng = rng
		l, mem := &b.s.l, b.s.mem
		update := func(data []byte) *changer {
			m := Acquire{Tags: &memory.Tagger{Owner: 2, Epoch: 1}, Data: true}
			return update(m, []int{0}, func() error { return nil }, func([][]byte) ([][]byte, error) { return [][]byte{data}, nil })
		}
		for _, data := range [][]byte{threeWords(1, 1), threeWords(before, 2)} {
			_, err := b.run(t, update(data))
			require.NoError(t, err)
		}
		now := time.Unix(0, 0)
		r := &Reader{Acquire: Acquire{Tags: &memory.Tagger{Owner: 3, Epoch: 1}, Data: true, Reading: true}, Accesses: readsOf(0)}
		began := now
		r.InTime = time.Second
		if seed%2 == 0 {
			r.Protocol = ProtocolReadChain
		}
		b.prepare(r)
		var reading *simList
		step := func(m Machine) (*simList, Verdict) {
			v, err := m.Step()
			require.NoError(t, err)
			if v != Post && v != Last {
				return nil, v
			}
			return &simList{w: m.Base(), ops: m.Base().Ops}, v
		}
		ended, last, stalled := false, false, false
		read := func() { // one memory access, or the next READ
			switch {
			case ended, stalled && reading != nil:
			case reading == nil:
				var v Verdict
				r.Took, began = now.Sub(began), now
				reading, v = step(r)
				ended, last = v == Done, v == Last
			case b.s.execute(reading):
				reading, ended = nil, last
			}
		}
		some := func(n int) {
			for range rng.IntN(n) {
				read()
			}
		}
		for some(5); memory.LoadWord(mem, l.LockOff(0)) != 0; {
			read()
		}
		old, err := b.s.current(0)
		require.NoError(t, err)
		next := make([]byte, l.CopyStride())
		l.Stage(next, &old)
		l.Put(next, 0, old.Version+1, threeWords(dead, 2))
		l.Seal(next, old.Version+1)
		storeWord(mem, l.LockOff(0), memory.MakeTag(1, 1, 1))
		for _, i := range rng.Perm(len(next) / 8)[:rng.IntN(len(next)/8)] {
			copy(mem[l.CopyOff(0, 1-old.Which)+8*i:][:8], next[8*i:])
		}
		if slices.Equal(mem[l.CopyOff(0, 1-old.Which):][:len(next)], next) {
			continue // what is missing was there before: the WRITE has happened
		}

		some(10)
		stalled = seed%3 > 0 // its READ is under way until all else is over
		rec := (&Recovery{Region: mem}).DeadSessions(l, Identity{Owner: 1, Epoch: 1})
		b.prepare(rec)
		for {
			x, v := step(rec)
			if v == Done {
				break
			}
			if v == Sleep {
				now = now.Add(2 * time.Second)
				continue
			}
			for !b.s.execute(x) {
				some(2)
			}
		}
		w := b.prepare(update(threeWords(after, 2))).(*changer)
		for n := 0; ; n++ {
			require.Less(t, n, 10_000, "seed %d: it is not free", seed)
			x, v := step(w)
			for x != nil && !b.s.execute(x) {
				some(3)
			}
			read() // which may have the lock
			if v == Last {
				break
			}
		}
		stalled = false
		for range 1000 {
			read()
		}
		require.True(t, ended, "seed %d", seed)
		require.Contains(t, []uint64{before, after}, value(r.Accesses[0].Data), "seed %d", seed)
		require.Zero(t, memory.LoadWord(mem, l.LockOff(0)), "seed %d", seed)
		if r.Count.Torn > 0 {
			torn++
		}
	}
	require.Positive(t, torn)
}

// A recovery that broke off behind the WRITE over a head is begun anew, and pauses again.
// The lock of a slot that fills a list, and is looked at again, stays until after the
// pause too.
func TestRecoveryBegunAnew(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 20, Size: 8, Clients: 500})
	l, mem := &b.s.l, b.s.mem
	tag := memory.MakeTag(1, 1, 1)
	var dead []Identity
	for owner := uint16(1); owner <= 500; owner++ {
		dead = append(dead, Identity{Owner: owner, Epoch: 1})
	}
	for slot := range fullList { // the last one begins at the end of a list
		storeWord(mem, l.LockOff(slot), tag)
	}
	last := fullList - 1
	for i := range l.ReadersSize() / 8 {
		storeWord(mem, l.ReadersOff(last)+8*i, 1)
	}
	mem[l.CopyOff(last, 1)+8] ^= 1
	for range 2 {
		m := b.prepare((&Recovery{Region: mem}).DeadSessions(l, dead...)).(*Recovery)
		v := Post
		for ; v == Post; v, _ = m.Step() {
			for x := (&simList{w: m.Base(), ops: m.Ops}); len(m.Ops) > 0 && !b.s.execute(x); {
			}
		}
		require.Equal(t, Sleep, v)
		require.Equal(t, []int{last}, m.pieces)
		require.Equal(t, tag, memory.LoadWord(mem, l.LockOff(last)))
		require.Zero(t, memory.LoadWord(mem, l.LockOff(0)), "nobody else waits")
		require.False(t, anyBits(mem[l.ReadersOff(last):][:l.ReadersSize()]))
		require.False(t, anyBits(mem[l.CopyOff(last, 1):][:memory.HeaderSize]))
	}
	m := (&Recovery{Region: mem}).DeadSessions(l, dead...)
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, 1, m.Freed)
	require.Zero(t, memory.LoadWord(mem, l.LockOff(last)))
	cur, err := b.s.current(last)
	require.NoError(t, err)
	require.False(t, cur.Whole)
}

// A slot with a copy in pieces keeps no other one from being recovered.
func TestRecoveryBehindPieces(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 4, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	for slot := range l.Slots {
		storeWord(mem, l.LockOff(slot), memory.MakeTag(1, 1, 1))
	}
	for _, slot := range []int{0, 2} {
		mem[l.CopyOff(slot, 1)+8] ^= 1
	}
	m := (&Recovery{Region: mem}).DeadSessions(l, Identity{Owner: 1, Epoch: 1})
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.NoError(t, b.s.free())
	require.Equal(t, 4, m.Freed)
}

// What an agent has reserved a client may take at any moment, and write.
func TestAgentRecoveryTouchesNoData(t *testing.T) {
	b := newBench()
	storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(memory.AgentOwner, 1, 1))
	b.s.mem[b.s.l.CopyOff(0, 1)] ^= 1
	lists, _, err := b.lists(t, AgentRecovery(b.s.mem))
	require.NoError(t, err)
	require.Zero(t, writes(slices.Concat(lists...)))
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}
