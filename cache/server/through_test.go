package server

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/internal/wiretest"
	"github.com/goverbs/goverbs/verbs"
)

// A client that says goodbye is forgotten at once, if its READs go through the target. A client with a
// queue pair is forgotten with that: until then nothing that it says has its memory be used. A client
// that is gone without a word is remembered, and not cut off when it is late.
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
	require.True(t, s.through.fence.IsGone(id), "it could go on to READ")

	id, _ = s.attach(func(error) { causes++ }, true)
	s.put(t, 1)
	require.Contains(t, late(), id)
	s.mu.Lock()
	s.cutLate(id)
	s.mu.Unlock()
	require.Equal(t, 2, causes)
	require.False(t, s.through.fence.IsGone(id), "its queue pair is gone")
}

// A client that comes while no target can be made is told what there is to READ all the same: of the next target it
// learns no more than where that is.
func TestTargetThatCannotBeMade(t *testing.T) {
	s, _ := tablesRig(t, func(int) error { return nil })
	defer s.Close()
	s.dev, s.cfg.DC.Responders = &verbs.Device{}, 1 // that has no GID
	s.offer = []verbs.Region{{Addr: 1 << 20, Length: 1 << 21, RKey: 3}, {Addr: 1 << 30, Length: 4096, RKey: 5}}
	s.through.said.Number = 6
	gone, _ := s.attachThrough(func(error) {}, greet.Seal{})
	hangs, hanging := s.attachThrough(func(error) {}, greet.Seal{})
	_, here := s.attachThrough(func(error) {}, greet.Seal{})
	s.put(t, 1)
	s.put(t, 1)
	require.True(t, s.store.Behind(gone) && s.store.Behind(hangs))
	s.depart(gone)
	s.mu.Lock()
	s.cutLate(hangs)
	s.fenceNow()
	s.mu.Unlock()
	s.running.Wait()
	require.EqualValues(t, 6, hanging.tell.Number, "it is told of no other")
	require.EqualValues(t, 7, here.tell.Number)
	require.Zero(t, s.Stats().DC.Gone, "who was gone READs nothing any more")
	require.False(t, s.store.Behind(gone))
	require.False(t, s.store.Behind(hangs))
	var kinds []wire.Kind
	s.mu.Lock()
	said := s.gather(here, nil)
	s.mu.Unlock()
	require.NoError(t, wiretest.Each(said, func(kind wire.Kind, _ []byte) error {
		kinds = append(kinds, kind)
		return nil
	}))
	require.Equal(t, []wire.Kind{wire.KindTarget, wire.KindMap}, kinds[:2], "the target before what it is to READ there")

	_, c := s.attachThrough(func(error) {}, greet.Seal{})
	require.EqualValues(t, 7, c.tell.Number)
	require.Equal(t, s.epoch, c.tell.Epoch)
	require.Empty(t, c.tell.Address)
	for b, i := c.tell.Regions, 0; i < 2; b, i = b[verbs.RegionSize:], i+1 {
		var r verbs.Region
		require.NoError(t, r.UnmarshalBinary(b[:verbs.RegionSize]))
		require.Equal(t, s.offer[i], r)
	}
	require.Len(t, c.tell.Regions, 2*verbs.RegionSize)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.True(t, s.through.fence.Begin(time.Hour), "it is tried again")
	s.dev = nil
}
