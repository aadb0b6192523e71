package cache

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// A server that comes at the address of a member that has died has one client with it, which stays when that member
// is gone.
func TestMembersWithOneAddress(t *testing.T) {
	addresses := nobody(t, 2)
	c := &Cluster{}
	c.routes.Store(&routes{cluster: [16]byte{1}, next: make(chan struct{})})
	told := place.New([16]byte{1}, place.Shards, place.Server{Life: place.Life{ID: "a"}, Address: addresses[0]})
	tell := func() []*Client {
		c.placed(&place.Message{Placement: *told})
		return c.routes.Load().clients
	}
	join := func(id, address string) {
		next, err := told.Join(place.Server{Life: place.Life{ID: id}, Address: address, Weight: 1})
		require.NoError(t, err)
		told = next
	}
	join("b", addresses[1])
	before := tell()
	require.Len(t, before, 2)
	join("c", addresses[1])
	moved, err := told.Move(place.Life{ID: "c"}, 0)
	require.NoError(t, err)
	told, err = moved.Move(place.Life{ID: "b"}, 1)
	require.NoError(t, err)
	require.True(t, slices.Equal(before, tell()))
	require.Equal(t, uint8(1), c.routes.Load().owner[0])
	require.Equal(t, uint8(1), c.routes.Load().owner[1])
	told, err = told.TakeOver(place.Life{ID: "b"})
	require.NoError(t, err)
	require.True(t, slices.Equal(before, tell()))
	require.NoError(t, c.Close())
	for _, one := range before {
		require.ErrorIs(t, one.ctx.Err(), context.Canceled)
	}
}
