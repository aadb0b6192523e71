package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Clients without a bit among the readers share the lock with those that have one, not
// with each other, and keep writers out. What they leave when they die is taken back.
func TestReadersWithoutABit(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 520})
	l, mem := &b.s.l, b.s.mem
	shared := func(owner uint16) (*AcquireShared, error) {
		m := &AcquireShared{Acquire: Acquire{Tags: &memory.Tagger{Owner: owner, Epoch: 1}, Tries: 1}}
		_, err := b.run(t, m)
		return m, err
	}
	write := func() error {
		m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Tries: 1}
		_, err := b.run(t, m)
		return err
	}
	give := func(m *AcquireShared, owner uint16) {
		_, err := b.run(t, &Releaser{Grant: m.Grant, Owner: owner})
		require.NoError(t, err)
	}
	last, err := shared(520)
	require.NoError(t, err)
	with, err := shared(512)
	require.NoError(t, err)
	_, err = shared(513)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.ErrorIs(t, write(), ErrNotAcquired)
	give(with, 512)
	require.ErrorIs(t, write(), ErrNotAcquired)
	give(last, 520)
	require.NoError(t, write())
	_, err = shared(520)
	require.ErrorIs(t, err, ErrNotAcquired)

	storeWord(mem, l.LockOff(0), 0)
	_, err = shared(513)
	require.NoError(t, err)
	_, err = b.run(t, (&Recovery{Region: mem}).DeadSessions(l, Identity{Owner: 513, Epoch: 1}, Identity{Owner: 520, Epoch: 1}))
	require.NoError(t, err)
	require.Zero(t, memory.LoadWord(mem, l.LockOff(0)))
	require.False(t, anyBits(mem[l.ReadersOff(0):][:l.ReadersSize()]))
}
