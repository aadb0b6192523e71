//go:build linux

package cache_test

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// initiator is one at the near end of the wire.
func initiator(t *testing.T, contexts int) *dc.Initiator {
	t.Helper()
	ends := lab.Require(t, 2)
	dev, err := verbs.Open(ends[0].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := dev.FindGID(verbs.GIDQuery{Addr: ends[0].Addr})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: gid, Contexts: contexts})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, i.Close())
		require.NoError(t, pd.Close(), "nothing is left there")
		require.NoError(t, dev.Close())
	})
	return i
}

var byDC = server.Config{Lease: quiet, DC: server.DCConfig{Responders: 4}}

// A hit through a shared initiator is one READ, and nothing else crosses the wire by RDMA; the server's
// program knows of none.
func TestHitThroughAnInitiatorIsOneREAD(t *testing.T) {
	s := serve(t, byDC)
	c, ctx := dial(t, s.Addr().String(), cache.Config{DC: initiator(t, 2)}), within(t)
	value := bytes.Repeat([]byte("v"), 300)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: value, Flags: 7}, 0))
	whole(t, c, 1)
	require.Equal(t, cache.DC, c.Stats().Transport)
	_, err := c.Get(ctx, key(1)) // which attaches
	require.NoError(t, err)
	packets := watch(t)
	packets.take()
	before := c.Stats()
	const n = 50
	dst := make([]byte, 1000)
	for range n {
		it, err := c.GetInto(ctx, key(1), dst)
		require.NoError(t, err)
		require.Equal(t, value, it.Value)
		require.Equal(t, uint32(7), it.Flags)
	}
	seen := packets.take()
	require.Equal(t, n, seen[[2]byte{readRequest, 0}])
	require.Equal(t, n, seen[[2]byte{readResponse, 1}])
	require.Zero(t, sends(seen))
	st := c.Stats()
	require.Equal(t, [4]uint64{n, n, 0, 0}, [4]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls, st.Blocked})
	require.Zero(t, s.Stats().Gets)
	require.Equal(t, server.DCStats{Clients: 1, Attached: 1}, s.Stats().DC)
	_, err = c.Get(ctx, key(2))
	require.ErrorIs(t, err, cache.ErrNotFound, "a miss is confirmed")
	require.ErrorIs(t, c.WriteAt(ctx, []byte("x"), 0), cache.ErrNoRegion)
}

// Many keys are READ together, long values in parts, and keys that the map has no room for by READs of the
// server's buckets.
func TestManyAndLongThroughAnInitiator(t *testing.T) {
	s := serve(t, byDC)
	i, ctx := initiator(t, 2), within(t)
	c := dial(t, s.Addr().String(), cache.Config{DC: i})
	const n = 80
	var keys [][]byte
	for k := range n {
		keys = append(keys, key(k))
		require.NoError(t, c.Set(ctx, key(k), cache.Item{Value: []byte(strconv.Itoa(k))}, 0))
	}
	long := bytes.Repeat([]byte("long"), 50_000)
	require.NoError(t, c.Set(ctx, []byte("long"), cache.Item{Value: long}, 0))
	whole(t, c, n+1)
	before := c.Stats()
	for k, r := range c.GetMulti(ctx, keys, nil) {
		require.NoError(t, r.Err)
		require.Equal(t, strconv.Itoa(k), string(r.Value))
	}
	it, err := c.Get(ctx, []byte("long"))
	require.NoError(t, err)
	require.Equal(t, long, it.Value)
	st := c.Stats()
	require.Equal(t, [3]uint64{n + 1, 0, 0}, [3]uint64{st.Hits - before.Hits, st.Calls - before.Calls, st.Blocked})
	require.Greater(t, st.Reads-before.Reads, uint64(n+2), "the long one in parts")

	small := dial(t, s.Addr().String(), cache.Config{DC: i, MapBytes: 10 * 30})
	for end := time.Now().Add(stuck); small.Stats().Entries == 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	before = small.Stats()
	for k := range n {
		it, err := small.Get(ctx, key(k))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(k), string(it.Value))
	}
	st = small.Stats()
	require.EqualValues(t, n, st.Hits-before.Hits)
	require.NotZero(t, st.Probes)
	require.Zero(t, st.Blocked)
	// The first of two that know a target by one initiator closes.
	require.NoError(t, c.Close())
	for range 3 {
		_, err = small.Get(ctx, key(1))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, small.Stats().Blocked, uint64(1))
	require.Less(t, uint64(0), small.Stats().Hits-st.Hits)
}

// A server without a target is one that the client has queue pairs to.
func TestNoTarget(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	c := dial(t, s.Addr().String(), cache.Config{DC: initiator(t, 1)})
	require.Equal(t, cache.RDMA, c.Stats().Transport)
}
