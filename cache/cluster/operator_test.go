package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// moving returns a placement of three members, of which the one with the number 3 has no shards yet.
func moving(t *testing.T) *place.Placement {
	t.Helper()
	p := place.New([16]byte{1}, place.Shards, place.Server{Life: place.Life{ID: "a", Boot: 1}, Address: "10.77.0.2:1", Weight: 1})
	for i, id := range []string{"b", "c"} {
		var err error
		p, err = p.Join(place.Server{Life: place.Life{ID: id, Boot: 1}, Address: "10.77.0.2:1", Weight: 1})
		require.NoError(t, err)
		if i == 0 {
			p = planned(t, p, 2)
		}
	}
	return p
}

// planned returns a placement in which a member has its share.
func planned(t *testing.T, p *place.Placement, number uint8) *place.Placement {
	t.Helper()
	for _, m := range p.Plan() {
		if m.To == number {
			var err error
			p, err = p.Move(p.Member(number).Life, m.Shard)
			require.NoError(t, err)
		}
	}
	return p
}

func viewOf(p *place.Placement) *view { return &view{View: own.View{Placement: p}} }

// An operator who takes a drain back waits for the shards of that member, and not for those of others.
func TestOperatorWaitsForOneMember(t *testing.T) {
	p := moving(t)
	w := operatorWait{id: "b"}
	require.NotEmpty(t, p.Plan(), "c lacks its share")
	shards, over, err := w.look(viewOf(p), nil, 0)
	require.NoError(t, err)
	require.True(t, over)
	require.Equal(t, place.Shards/2, shards)
	w = operatorWait{id: "c"}
	_, over, err = w.look(viewOf(p), nil, 0)
	require.NoError(t, err)
	require.False(t, over)
	shards, over, err = w.look(viewOf(planned(t, p, 3)), nil, time.Hour)
	require.NoError(t, err)
	require.True(t, over)
	require.Equal(t, place.Shards/3, shards)
	drained, err := p.Drain(place.Life{ID: "b", Boot: 1}, true)
	require.NoError(t, err)
	w = operatorWait{id: "b"}
	_, over, err = w.look(viewOf(drained), nil, 0)
	require.NoError(t, err)
	require.False(t, over, "the member does not know of it yet")
}

// An operator is told that a drain does not get on, and why.
func TestOperatorWaitsInVain(t *testing.T) {
	p := moving(t)
	begin := func() *operatorWait {
		w := &operatorWait{id: "b", drain: true}
		shards, over, err := w.look(viewOf(p), nil, time.Second)
		require.NoError(t, err)
		require.False(t, over)
		require.Equal(t, place.Shards/2, shards)
		return w
	}
	alone := p
	for _, id := range []string{"a", "c"} {
		var err error
		alone, err = alone.Drain(place.Life{ID: id, Boot: 1}, true)
		require.NoError(t, err)
	}
	_, _, err := begin().look(viewOf(alone), nil, 2*time.Second)
	require.ErrorIs(t, err, ErrLast)
	require.ErrorContains(t, err, "b has 512 shards")

	_, _, err = begin().look(viewOf(takenOver(t, p, place.Life{ID: "b", Boot: 1})), nil, 2*time.Second)
	require.ErrorContains(t, err, "b is no member any more")
	_, _, err = begin().look(&view{}, nil, 2*time.Second)
	require.ErrorContains(t, err, "b is no member any more")

	silent := errors.New("silent")
	w := begin()
	_, over, err := w.look(nil, silent, operatorTimeout)
	require.NoError(t, err)
	require.False(t, over)
	_, _, err = w.look(nil, silent, operatorTimeout+time.Second)
	require.ErrorIs(t, err, silent)

	w = begin()
	_, over, err = w.look(viewOf(p), nil, stalled)
	require.NoError(t, err)
	require.False(t, over)
	b := slices.IndexFunc(p.Shards, func(s place.Shard) bool { return s.Owner == 2 })
	fewer, err := p.Move(place.Life{ID: "c", Boot: 1}, b)
	require.NoError(t, err)
	_, _, err = w.look(viewOf(fewer), nil, stalled+time.Second)
	require.NoError(t, err, "one has moved")
	_, _, err = w.look(viewOf(fewer), nil, 2*stalled)
	require.NoError(t, err)
	_, _, err = w.look(viewOf(fewer), nil, 2*stalled+time.Second)
	require.ErrorContains(t, err, "b has 511 shards, of which none has moved for 1m0s")
}
