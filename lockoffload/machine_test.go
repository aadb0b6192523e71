package lockoffload

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

func (b *bench) prepare(m machine) machine {
	w := m.base()
	w.l, w.mem = b.s.l, make([]byte, b.s.l.LocalSize())
	return m
}

// run executes a machine to its end and answers its last list.
func (b *bench) run(t *testing.T, m machine) ([]op, error) {
	t.Helper()
	lists, v, err := b.lists(t, m)
	if v == done {
		return nil, err
	}
	return lists[len(lists)-1], err
}

// lists executes a machine to its end and answers all that it posted.
func (b *bench) lists(t *testing.T, m machine) (lists [][]op, end verdict, err error) {
	t.Helper()
	b.prepare(m)
	for range 100 {
		v, err := m.step()
		if v == post || v == last {
			lists = append(lists, slices.Clone(m.base().ops))
			for x := (&simList{w: m.base(), ops: lists[len(lists)-1]}); !b.s.execute(x); {
			}
		}
		switch v {
		case last:
			return lists, v, errors.Join(err, m.base().settled())
		case done:
			return lists, v, err
		}
	}
	t.Fatal("no end")
	return nil, 0, nil
}

func storeWord(mem []byte, at int, v uint64) { binary.NativeEndian.PutUint64(mem[at:], v) }

func writes(ops []op) int {
	n := 0
	for _, o := range ops {
		if o.kind == opWrite {
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
		m := &acquire{tags: tags}
		_, err := b.run(t, m)
		require.NoError(t, err)
		if stolen {
			storeWord(b.s.mem, b.s.l.LockOff(0), memory.MakeTag(2, 1, 1))
		}
		_, err = b.run(t, &releaser{grant: m.grant, owner: 1})
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
	u := &updater{acquire: acquire{tags: tags, data: true}, records: first, allowed: func() error { return over }}
	u.change = func([][]byte) ([][]byte, error) { return [][]byte{[]byte("new")}, nil }
	ops, err := b.run(t, u)
	require.ErrorIs(t, err, over)
	require.Zero(t, writes(ops))
	require.False(t, u.wrote)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))

	m := &acquire{tags: tags}
	_, err = b.run(t, m)
	require.NoError(t, err)
	old, err := b.s.current(0)
	require.NoError(t, err)
	r := &releaser{grant: m.grant, owner: 1, old: &old, allowed: func() error { return over }}
	ops, err = b.run(t, r)
	require.ErrorIs(t, err, over)
	require.Zero(t, writes(ops))
	require.False(t, r.wrote)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}

// Recovery takes back what a session has, and nothing of the owner's next one.
func TestRecoveryKeepsTheNextSession(t *testing.T) {
	b := newBench()
	l := &b.s.l
	storeWord(b.s.mem, l.LockOff(0), memory.MakeTag(1, 1, 5))
	storeWord(b.s.mem, l.LockOff(1), memory.MakeTag(1, 2, 5))
	_, err := b.run(t, (&recovery{region: b.s.mem}).deadSessions(l, Invite{Owner: 1, Epoch: 1}))
	require.NoError(t, err)
	require.Zero(t, memory.LoadWord(b.s.mem, l.LockOff(0)))
	require.EqualValues(t, memory.MakeTag(1, 2, 5), memory.LoadWord(b.s.mem, l.LockOff(1)))
}

// A writer that died in the middle of its WRITE leaves a copy that is torn for good.
// Reads end all the same, with the other one.
func TestReadBesideADeadWriter(t *testing.T) {
	b := newBench()
	b.s.mem[b.s.l.CopyOff(0, 1)] ^= 1
	got := 0
	m := &reader{acquire: acquire{tags: &memory.Tagger{Owner: 1, Epoch: 1}, data: true, reading: true}, records: []int{1, 0}}
	m.deliver = func(_ int, c memory.Content) error { got++; require.Zero(t, c.Version); return nil }
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, 2, got)
	require.Equal(t, FormReadHeld, m.form)
	require.EqualValues(t, mostReads, m.count.Torn)
	require.Zero(t, memory.LoadWord(b.s.mem, b.s.l.LockOff(0)))
}

// Who still belongs to a session that has gone gets no bit among the readers, which
// nobody would know of.
func TestSharedLockOfAnOldSession(t *testing.T) {
	c := &Client{s: new(session), bits: map[int]*bit{}}
	old := new(session)
	_, _, _, err := c.joinShare(old, 0)
	require.ErrorIs(t, err, ErrLost)
	require.Empty(t, c.bits)
	b, joined, wait, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.False(t, joined)
	require.Nil(t, wait)
	other, joined, wait, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.Nil(t, other)
	require.False(t, joined)
	require.NotNil(t, wait, "one bit is added once at a time")
	c.bits = map[int]*bit{} // as Reconnect does
	c.endShare(b)
	<-wait
	require.Empty(t, c.bits)
}
