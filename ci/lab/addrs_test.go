//go:build linux

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs"
)

// A WRITE to an added address crosses the wire, both on the first device that
// carries them and on the next.
func TestAddAddrs(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	far, err := lab.AddAddrs(300)
	require.NoError(t, err)
	require.Len(t, far, 300)
	require.NotEqual(t, far[0].Device, far[299].Device)
	for _, f := range []lab.Endpoint{far[0], far[24], far[25], far[299]} {
		require.NoError(t, topo.ProveWire("h0", topo.Addr(0), "h1", f.Addr))
		a, b := newEnd(t, ends[0], 64), newEnd(t, f, 64)
		connect(t, a, b, verbs.ConnectConfig{})
		before, err := lab.Counters("h1")
		require.NoError(t, err)
		copy(a.mr.Bytes(), f.Addr.String())
		carry(t, a, func(batch *verbs.Batch) {
			batch.Write(1, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(0, 64))
		})
		require.Equal(t, f.Addr.String(), string(b.mr.Bytes()[:len(f.Addr.String())]))
		after, err := lab.Counters("h1")
		require.NoError(t, err)
		require.Greater(t, after.RxPackets, before.RxPackets)
		require.Greater(t, after.TxPackets, before.TxPackets)
	}

	again, err := lab.Endpoints()
	require.NoError(t, err)
	require.Equal(t, ends, again)

	// The device below has the GIDs of all that is stacked on it, and can name no
	// more than 256 of them.
	dev, err := verbs.Open(ends[1].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	defer dev.Close()
	gids, err := dev.GIDs()
	require.NoError(t, err)
	indexes := make(map[uint8]bool)
	for _, g := range gids {
		indexes[g.Index] = true
	}
	require.Equal(t, []int{256, 256}, []int{len(gids), len(indexes)})
}
