//go:build linux && cgo

package verbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// The stand-in is a device of vendor 0x15b3 that has options 0x30000006.

func eceQP(t *testing.T, p *PD, c *CQ) *QP {
	t.Helper()
	q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Extended: true, ECE: true})
	require.NoError(t, err)
	return q
}

func TestECEBetweenEqualDevices(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := eceQP(t, p, c)
	e, err := q.Endpoint()
	require.NoError(t, err)
	require.Equal(t, ECE{Vendor: 0x15b3, Options: 0x30000006}, e.ECE, "all that the device has")
	standin.Recorded()
	peer := Endpoint{Type: RC, QPN: 1, GID: standinPeer, MTU: MTU4096, ECE: ECE{Vendor: 0x15b3, Options: 0x10000004}}
	require.NoError(t, q.Connect(peer, ConnectConfig{}))
	recorded(t, `
		ibv_set_ece vendor=0x15b3 options=0x10000004
		modify mask=0x129181 state=2 mtu=5 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=12 global=1 qkey=0
		modify mask=0x12e01 state=3 mtu=0 port=0 timeout=14 retry=6 rnr=7 reads=16 min_rnr=0 global=0 qkey=0`)
	taken, err := q.ECE()
	require.NoError(t, err)
	require.Equal(t, ECE{Vendor: 0x15b3, Options: 0x10000004}, taken, "what both have")

	standin.Recorded()
	require.Error(t, q.Connect(peer, ConnectConfig{}), "it is connected")
	require.NotContains(t, standin.Recorded(), "ece", "the device would forget what it took")

	// A second connection offers the same as the first one.
	require.NoError(t, q.ToReset())
	e, err = q.Endpoint()
	require.NoError(t, err)
	require.Equal(t, ECE{Vendor: 0x15b3, Options: 0x30000006}, e.ECE)
	require.NoError(t, q.Close())
}

func TestECEWithOtherPeers(t *testing.T) {
	peer := Endpoint{Type: RC, QPN: 1, GID: standinPeer, MTU: MTU4096}
	for name, offer := range map[string]ECE{"without ECE": {}, "of another vendor": {Vendor: 0x1425, Options: 6}} {
		t.Run(name, func(t *testing.T) {
			_, p, c, _ := driverRig(t)
			q := eceQP(t, p, c)
			standin.Recorded()
			peer.ECE = offer
			require.NoError(t, q.Connect(peer, ConnectConfig{}))
			require.Contains(t, standin.Recorded(), "ibv_set_ece vendor=0x15b3 options=0\n")
			taken, err := q.ECE()
			require.NoError(t, err)
			require.Zero(t, taken.Options)
			require.NoError(t, q.Close())
		})
	}
	t.Run("with it, and this side without", func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Extended: true})
		require.NoError(t, err)
		peer.ECE = ECE{Vendor: 0x15b3, Options: 6}
		require.NoError(t, q.Connect(peer, ConnectConfig{}))
		require.NotContains(t, standin.Recorded(), "ece")
		require.NoError(t, q.Close())
	})
	t.Run("refused by the device", func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		q := eceQP(t, p, c)
		peer.ECE = ECE{Vendor: 0x15b3, Options: 6}
		standin.Refuse("ibv_set_ece", syscall.EINVAL)
		require.ErrorContains(t, q.Connect(peer, ConnectConfig{}), "options 0x6")
		require.Equal(t, StateInit, q.State())
		standin.Refuse("ibv_set_ece", syscall.EOPNOTSUPP) // mlx5 on a kernel without
		require.NoError(t, q.Connect(peer, ConnectConfig{}))
		require.NoError(t, q.Close())
	})
	t.Run("on a device without", func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		standin.Refuse("ibv_query_ece", syscall.EOPNOTSUPP)
		q := eceQP(t, p, c)
		e, err := q.Endpoint()
		require.NoError(t, err)
		require.Zero(t, e.ECE)
		require.NoError(t, q.Close())
	})
	t.Run("of datagrams", func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		_, err := p.CreateQP(QPConfig{Type: UD, SendCQ: c, GID: standinGID, Extended: true, ECE: true})
		require.ErrorIs(t, err, ErrAttributes)
		require.Empty(t, standin.Recorded())
	})
}
