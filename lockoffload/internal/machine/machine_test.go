package machine

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// bench is a machine on memory that executes each list at once.
type bench struct {
	s *sim
}

func newBench() *bench {
	l := memory.Layout{Slots: 2, Size: 16, Records: 2, Clients: 3}.WithDefaults()
	s := newSim(1, l, 1, flaws{})
	return &bench{s}
}

func (b *bench) prepare(m Machine) Machine {
	w := m.Base()
	w.L, w.Mem = b.s.l, make([]byte, b.s.l.LocalSize())
	return m
}

// run executes a machine to its end and returns its last list.
func (b *bench) run(t *testing.T, m Machine) ([]Op, error) {
	t.Helper()
	lists, v, err := b.lists(t, m)
	if v == Done {
		return nil, err
	}
	return lists[len(lists)-1], err
}

// lists executes a machine to its end and returns all lists that it posted.
func (b *bench) lists(t *testing.T, m Machine) (lists [][]Op, end Verdict, err error) {
	t.Helper()
	b.prepare(m)
	for range 100 {
		v, err := m.Step()
		if v == Post || v == Last {
			lists = append(lists, slices.Clone(m.Base().Ops))
			for x := (&simList{w: m.Base(), ops: lists[len(lists)-1]}); !b.s.execute(x); {
			}
		}
		switch v {
		case Last:
			return lists, v, errors.Join(err, m.Base().Settled())
		case Done:
			return lists, v, err
		}
	}
	t.Fatal("no end")
	return nil, 0, nil
}

func storeWord(mem []byte, at int, v uint64) { binary.NativeEndian.PutUint64(mem[at:], v) }

func writes(ops []Op) int {
	n := 0
	for _, o := range ops {
		if o.Kind == OpWrite {
			n++
		}
	}
	return n
}

// A lock that others have meanwhile is lost, which its holder learns.
func TestSettled(t *testing.T) {
	b := newBench()
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	for _, stolen := range []bool{false, true} {
		m := &Acquire{Tags: tags}
		_, err := b.run(t, m)
		require.NoError(t, err)
		if stolen {
			storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(2, 1, 1))
		}
		_, err = b.run(t, &Releaser{Grant: m.Grant, Owner: 1})
		if !stolen {
			require.NoError(t, err)
			require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
			continue
		}
		require.ErrorIs(t, err, ErrLost)
		require.EqualValues(t, memory.MakeTag(2, 1, 1), memory.LoadWord(b.s.mem, b.s.l.LockOff(0)), "the other one's stays")
	}
}

// What was computed under a lease that has run out is not written; the lock is given
// back all the same.
func TestNoWriteAfterTheLease(t *testing.T) {
	b := newBench()
	over := errors.New("over")
	tags := &memory.Tagger{Owner: 1, Epoch: 1}
	u := update(Acquire{Tags: tags, Data: true}, []int{0}, func() error { return over }, func([][]byte) ([][]byte, error) { return [][]byte{[]byte("new")}, nil })
	ops, err := b.run(t, u)
	require.ErrorIs(t, err, over)
	require.Zero(t, writes(ops))
	require.False(t, u.Wrote)
	require.Zero(t, u.Count.TwoStep)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}

// Recovery takes back what a session has, and nothing of the owner's next one.
func TestRecoveryKeepsTheNextSession(t *testing.T) {
	b := newBench()
	l := &b.s.l
	storeWord(b.s.mem, l.LockOff(0), memory.MakeTag(1, 1, 5))
	storeWord(b.s.mem, l.LockOff(1), memory.MakeTag(1, 2, 5))
	_, err := b.run(t, (&Recovery{Region: b.s.mem}).DeadSessions(l, Identity{Owner: 1, Epoch: 1}))
	require.NoError(t, err)
	require.Zero(t, memory.LoadWord(b.s.mem, l.LockOff(0)))
	require.EqualValues(t, memory.MakeTag(1, 2, 5), memory.LoadWord(b.s.mem, l.LockOff(1)))
}

// A writer that died in the middle of its WRITE leaves a copy that is torn for good.
// Reads end all the same, with the other one.
func TestReadBesideADeadWriter(t *testing.T) {
	b := newBench()
	b.s.mem[b.s.l.CopyOff(0, 1)] ^= 1
	m := &Reader{Acquire: Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Data: true, Reading: true}, Accesses: readsOf(1, 0)}
	m.Accesses[0].Version, m.Accesses[1].Version = 7, 7
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 0}, []uint64{m.Accesses[0].Version, m.Accesses[1].Version})
	require.Equal(t, ProtocolReadLocked, m.Protocol)
	require.EqualValues(t, maxReads, m.Count.Torn)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}
