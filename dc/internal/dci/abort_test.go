package dci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAbort: a DCI is taken down when its requests are not wanted, and comes back.
func TestAbort(t *testing.T) {
	c := New(1, 2, 4, 4)
	p, q := &Peer{}, &Peer{}
	c.Abort(p)
	posted(t, c, p, 2)
	posted(t, c, q, 1)
	end := func(number uint64, failed bool) {
		_, ok := c.Completed(number, failed)
		require.True(t, ok)
	}
	c.Abort(p)
	require.Empty(t, c.Actions, "another one has requests in it")
	end(0, false)
	c.Abort(q)
	require.Empty(t, c.Actions, "one of the first has succeeded meanwhile")
	c.Abort(p)
	c.Abort(p)
	require.Len(t, c.Actions, 1)
	require.Equal(t, Abort, c.Actions[0].Kind)
	end(1, true)
	end(2, true)
	require.Equal(t, Recover, c.Actions[1].Kind)
	c.Recovered(c.Actions[1].DCI, nil)
	require.True(t, c.DCIs[0].Ready())

	// They are wanted again when all has ended, and one that is done counts no more.
	c.Actions = nil
	posted(t, c, p, 1)
	posted(t, c, q, 1)
	end(4, false)
	c.Abort(p)
	require.Len(t, c.Actions, 1)
}
