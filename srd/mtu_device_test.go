//go:build linux

package srd_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/srd"
)

// Messages of any length arrive either way if both ends' links have different MTUs.
func TestMTUsDiffer(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("simulated devices have one MTU")
	}
	lab.RequireTopology(t, "wire")
	es := ends(t)
	a := open(t, es[0], srd.Config{})
	require.NoError(t, topo.SetMTU(es[1].Netdev, 1500))
	t.Cleanup(func() { require.NoError(t, topo.SetMTU(es[1].Netdev, topo.MTU)) })
	b := open(t, es[1], srd.Config{})
	require.Less(t, b.MaxPacket(), 1024)
	require.Greater(t, a.MaxPacket(), 2048)
	for i, n := range []int{64, 800, 2000, 20_000} {
		for _, to := range [][2]*srd.Endpoint{{a, b}, {b, a}} {
			require.NoError(t, to[0].Send(ctxOf(t), to[1].Addr(), pattern(i, n)), "%d bytes", n)
			_, got := receiveOne(t, to[1])
			require.Equal(t, pattern(i, n), got)
		}
	}
}

// A message that is longer than the receiver accepts has an error of its own, whether or not
// the receiver is known, and takes no time.
func TestTooLargeMessage(t *testing.T) {
	es := ends(t)
	a, b := open(t, es[0], srd.Config{}), open(t, es[1], srd.Config{MaxMessage: 10_000})
	ctx, cancel := context.WithTimeout(ctxOf(t), testTimeout/2)
	defer cancel()
	tooLarge := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, srd.ErrTooLarge)
		var long *srd.TooLargeError
		require.ErrorAs(t, err, &long)
		require.Equal(t, srd.TooLargeError{Size: 10_001, Limit: 10_000}, *long)
	}
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	long := srd.Request{To: b.Addr(), Data: [][]byte{make([]byte, 10_001)}}
	_, err = q.Post(long)
	require.NoError(t, err)
	var cs [1]srd.Completion
	_, err = q.Wait(ctx, cs[:])
	require.NoError(t, err)
	require.Equal(t, srd.Completion{Status: srd.TooLarge, Limit: 10_000}, cs[0])
	_, err = q.Post(long)
	tooLarge(err)
	c := open(t, es[0], srd.Config{})
	for range 2 {
		tooLarge(c.Send(ctx, b.Addr(), make([]byte, 10_001)))
	}
	require.NoError(t, c.Send(ctx, b.Addr(), make([]byte, 10_000)))
}
