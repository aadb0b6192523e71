//go:build simhca && linux && cgo

package srd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// Datagrams over IPv6 that any host may send into each receive of an endpoint do not make it
// deaf to its peers over IPv4.
func TestPoisonedReceives(t *testing.T) {
	v2 := verbs.GIDRoCEv2
	es := ends(t)
	dev, err := verbs.Open(es[0].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	gids, err := dev.GIDs()
	require.NoError(t, err)
	var v4, v6 verbs.GIDEntry
	for _, g := range gids {
		switch {
		case g.Type != v2:
		case g.GID.Addr().Is4():
			v4 = g
		default:
			v6 = g
		}
	}
	if v4.Port == 0 || v6.Port == 0 {
		t.Skip("needs SIMHCA=mlx5:ipv4,mlx5:ipv4")
	}
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	openAt := func() *srd.Endpoint {
		ep, err := srd.Open(srd.Config{PD: pd, GID: v4, Receives: 16, OnMessage: func(*srd.Message) {}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ep.Close()) })
		return ep
	}
	a, b := openAt(), openAt()
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("before")))

	cq, err := dev.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, GID: v6})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	require.NoError(t, qp.Activate())
	ah, err := pd.CreateAH(verbs.AHAttr{GID: v6.GID, SGIDIndex: v6.Index, Port: v6.Port})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	mr, err := pd.AllocMR(64, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	posts, err := qp.NewBatch(1)
	require.NoError(t, err)
	before := b.Stats().Malformed
	require.Eventually(t, func() bool {
		posts.SendTo(1, verbs.Signaled, verbs.Destination{AH: ah, QPN: b.Addr().QPN, QKey: b.Addr().QKey}, mr.SGE(0, 64))
		_, err := posts.Post()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		for n := 0; n == 0; {
			n, err = cq.Poll(wcs[:])
			require.NoError(t, err)
		}
		return b.Stats().Malformed-before >= 64 // each of the receives was used
	}, testTimeout, 100*time.Microsecond)

	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("after")))
	require.Zero(t, b.Stats().WrongSource)
	require.Zero(t, a.Stats().WrongSource)
}
