package dci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAbort: a DCI is taken down for a peer that is alone in it, and comes back.
func TestAbort(t *testing.T) {
	c := New(1, 2, 4, 4)
	p, q := &Peer{}, &Peer{Number: 1}
	c.Abort(p)
	for _, x := range []*Peer{p, q} {
		require.True(t, c.Place(x))
		require.Equal(t, 1, c.Admit(x, 1))
		c.Posted(x)
	}
	c.Abort(p)
	require.Empty(t, c.Actions, "another one has requests in it")
	_, ok := c.Completed(1, false)
	require.True(t, ok)
	c.Abort(q)
	require.Empty(t, c.Actions, "it has none there")
	c.Abort(p)
	c.Abort(p)
	require.Len(t, c.Actions, 1)
	require.Equal(t, Abort, c.Actions[0].Kind)
	_, ok = c.Completed(0, true)
	require.True(t, ok)
	require.Equal(t, Recover, c.Actions[1].Kind)
	c.Recovered(c.Actions[1].DCI, nil)
	require.True(t, c.DCIs[0].Ready())
}
