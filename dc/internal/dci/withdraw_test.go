package dci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithdraw: what is taken back leaves nothing behind.
func TestWithdraw(t *testing.T) {
	c := New(1, 1, 2, 4)
	p, q := &Peer{}, &Peer{}
	require.True(t, c.Place(p))
	require.Equal(t, 2, c.Admit(p, 5))
	c.Posted(p)
	c.Posted(p)
	c.Enqueue(p, 3)
	require.True(t, c.Place(q))
	c.Enqueue(q, 1)
	c.Withdraw(q, 1)
	require.Nil(t, q.DCI())
	c.Withdraw(p, 1)
	require.Equal(t, 2, p.Pending())
	require.Equal(t, 4, c.DCIs[0].load())
	c.Withdraw(p, 2)
	require.Zero(t, p.Pending())
	require.Equal(t, 2, c.DCIs[0].load())
	require.Empty(t, c.DCIs[0].waiting)
	for k := range uint64(2) {
		_, ok := c.Completed(k, false)
		require.True(t, ok)
	}
	require.Nil(t, p.DCI())
	require.Zero(t, c.DCIs[0].load())
}

// TestSeedsRepeat exactly.
func TestSeedsRepeat(t *testing.T) {
	for seed := range uint64(20) {
		require.Equal(t, traceOf(seed), traceOf(seed), "seed %d", seed)
	}
}
