package cluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// draining returns a member with the number 1 of two, and has it drain. It owns all shards.
func draining(t *testing.T) (*Member, *place.Placement) {
	t.Helper()
	entry := func(id string) place.Server {
		return place.Server{Life: place.Life{ID: id, Boot: 1}, Address: "10.77.0.2:1", Weight: 1}
	}
	p, err := place.New([16]byte{1}, place.Shards, entry("a")).Join(entry("b"))
	require.NoError(t, err)
	cfg := Config{}
	cfg.defaults()
	m := &Member{cfg: cfg, self: entry("a"), store: &store{}, changed: make(chan struct{}), done: make(chan struct{})}
	m.own = own.NewServer(cfg.own(), m.self.Life, 0)
	m.own.Learn(p, 0)
	next, _, over, err := m.leave(m.self.Life)
	require.NoError(t, err)
	require.False(t, over)
	require.Equal(t, place.Draining, next.Member(1).State)
	require.False(t, m.left)
	m.own.Learn(next, 0)
	return m, next
}

// given returns a placement in which the second member owns all shards.
func given(p *place.Placement) *place.Placement {
	next := *p
	next.Epoch++
	next.Shards = make([]place.Shard, len(p.Shards))
	for i := range next.Shards {
		next.Shards[i] = place.Shard{Owner: 2, Epoch: next.Epoch, Handed: true}
	}
	return &next
}

func takenOver(t *testing.T, p *place.Placement, life place.Life) *place.Placement {
	t.Helper()
	next, err := p.TakeOver(life)
	require.NoError(t, err)
	return next
}

func TestDrain(t *testing.T) {
	m, p := draining(t)
	next, _, over, err := m.leave(m.self.Life)
	require.NoError(t, err)
	require.Nil(t, next, "it waits until it owns nothing")
	require.False(t, over)
	m.own.Learn(given(p), 0)
	next, ops, over, err := m.leave(m.self.Life)
	require.NoError(t, err)
	require.False(t, over)
	require.Zero(t, next.Number(m.self.Life))
	require.Len(t, ops, 1)
	require.True(t, m.left)
	m.own.Learn(next, 0)
	_, _, over, err = m.leave(m.self.Life)
	require.True(t, over)
	require.NoError(t, err)
	m.gone(errGone)
	require.NoError(t, m.hasLeft(m.self.Life))
	require.NoError(t, m.Drain(t.Context()), "once more")
}

// Others take over the shards of a member that drains: its records are lost.
func TestDrainIsTooLate(t *testing.T) {
	m, p := draining(t)
	m.own.Learn(takenOver(t, p, m.self.Life), 0)
	_, _, over, err := m.leave(m.self.Life)
	require.True(t, over)
	require.ErrorIs(t, err, errEnded)
	require.ErrorIs(t, m.drain(t.Context(), m.self.Life), errEnded)

	m.own = nil // the next life begins
	require.ErrorIs(t, m.drain(t.Context(), m.self.Life), errEnded)
	m, _ = draining(t)
	require.ErrorIs(t, m.drain(t.Context(), place.Life{ID: "a"}), errEnded)
}

// A member that ends by itself, or is closed, has handed over nothing.
func TestDrainOfAMemberThatEnds(t *testing.T) {
	for _, why := range []error{ErrTaken, nil} {
		m, p := draining(t)
		m.own.Learn(given(p), 0)
		_, _, _, err := m.leave(m.self.Life)
		require.NoError(t, err)
		if why != nil {
			m.gone(why)
			require.ErrorIs(t, m.Err(), why)
			require.ErrorIs(t, m.hasLeft(m.self.Life), why)
		} else {
			require.ErrorIs(t, m.hasLeft(m.self.Life), errEnded)
		}
	}
}

// A drain that is given up does not keep the server from joining again, and the member is not undrained.
func TestDrainIsGivenUp(t *testing.T) {
	m, p := draining(t)
	m.own.Learn(given(p), 0)
	_, _, _, err := m.leave(m.self.Life)
	require.NoError(t, err)
	require.True(t, m.drained())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, m.Drain(ctx), context.Canceled)
	require.False(t, m.drained())
	m.view = &view{}
	require.Nil(t, m.ordered())
}

// A member that no other one relieves has its share again.
func TestDrainOfTheLastMember(t *testing.T) {
	m, p := draining(t)
	m.own.Learn(takenOver(t, p, place.Life{ID: "b", Boot: 1}), 0)
	require.ErrorIs(t, m.Drain(t.Context()), ErrLast)
	m.view = &view{}
	require.Equal(t, place.Member, m.ordered().Member(1).State)
}

// It has shards again, since another member has died meanwhile.
func TestDrainOwnsAgain(t *testing.T) {
	m, p := draining(t)
	p = given(p)
	m.own.Learn(p, 0)
	_, _, _, err := m.leave(m.self.Life)
	require.NoError(t, err)
	m.own.Learn(takenOver(t, p, place.Life{ID: "b", Boot: 1}), 0)
	_, _, _, err = m.leave(m.self.Life)
	require.ErrorIs(t, err, ErrLast)
	require.False(t, m.left)
}
