package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// Half as many shards move together after each failure, one at least, and twice as many after each success, up to what
// their memory allows. After a success the member rests.
func TestTogether(t *testing.T) {
	p := together{12, 12}
	for _, want := range []int{6, 3, 1, 1} {
		require.Zero(t, p.ended(time.Second, errKept))
		require.Equal(t, want, p.n)
	}
	for _, want := range []int{2, 4, 8, 12, 12} {
		require.Equal(t, 3*time.Second, p.ended(time.Second, nil))
		require.Equal(t, want, p.n)
	}
}

// A member that an operator drains asks for no shards, also while the placement does not say yet that it drains.
func TestNextOfADrainedMember(t *testing.T) {
	a, b := place.Server{Life: place.Life{ID: "a", Boot: 1}, Address: "10.77.0.2:1", Weight: 1}, place.Server{Life: place.Life{ID: "b", Boot: 1}, Address: "10.77.0.3:1", Weight: 1}
	p, err := place.New([16]byte{1}, place.Shards, a).Join(b)
	require.NoError(t, err)
	cfg := Config{}
	cfg.defaults()
	m := &Member{cfg: cfg, self: b, begun: time.Now(), own: own.NewServer(cfg.own(), b.Life, 0), view: emptyView()}
	m.own.Observe(own.View{Placement: p, Beats: map[place.Life]int64{a.Life: 1, b.Life: 2}}, 0, 0)
	r, address, ok := m.next(nil, maxTogether)
	require.True(t, ok)
	require.Equal(t, a.Address, address)
	require.Len(t, r.Shards, maxTogether)
	m.view.drains["b"] = true
	_, _, ok = m.next(nil, maxTogether)
	require.False(t, ok)
}
