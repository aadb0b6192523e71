package server

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Who says goodbye is forgotten at once, if its READs go through the target; another one's queue pair goes with it, so
// nothing that it says has its memory be used while there is that. Who is gone without a word is remembered, and
// not cut off when it is late.
func TestGoodbye(t *testing.T) {
	s, _ := tablesRig(t, func(int) error { return nil })
	defer s.Close()
	bye := wire.AppendBye(nil, s.epoch)
	cut := func(error) {}
	s.put(t, 1)
	waits := func() bool {
		s.put(t, 1) // over the last one
		return s.Stats().Quarantine > 0
	}

	id, c := s.attachThrough(cut, greet.Seal{})
	require.True(t, waits())
	_, err := s.take(id, c, append(bye, 0))
	require.ErrorIs(t, err, wire.Malformed)
	require.True(t, waits())
	_, err = s.take(id, c, bye)
	require.Equal(t, io.EOF, err)
	require.Zero(t, s.Stats().Quarantine)
	s.depart(id)
	require.Zero(t, s.Stats().DC.Gone)
	require.False(t, waits())

	id, c = s.attach(cut, true)
	_, err = s.take(id, c, bye)
	require.ErrorIs(t, err, wire.Malformed)
	require.True(t, waits())
	s.detach(id)
	require.False(t, waits())

	id, _ = s.attachThrough(cut, greet.Seal{})
	require.True(t, waits())
	s.depart(id)
	require.Equal(t, 1, s.Stats().DC.Gone)
	require.True(t, waits())
	now := uint64(1 << 30)
	late := func() []uint64 {
		now += 1 << 30
		require.Empty(t, s.store.Late(now, nil), "it has to pass a mark first")
		now += 1 << 30
		return s.store.Late(now, nil)
	}
	require.Equal(t, []uint64{id}, late())
	s.mu.Lock()
	s.cutLate(id)
	s.mu.Unlock()
	require.Zero(t, s.Stats().Cut, "it was gone")
	require.True(t, waits(), "and may READ")

	causes := 0
	id, _ = s.attachThrough(func(error) { causes++ }, greet.Seal{})
	s.put(t, 1)
	require.Equal(t, []uint64{id}, late())
	s.mu.Lock()
	s.cutLate(id)
	s.mu.Unlock()
	require.Equal(t, 1, causes)
	require.EqualValues(t, 1, s.Stats().Cut)
}
