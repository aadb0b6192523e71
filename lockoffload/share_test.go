package lockoffload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who still belongs to a session that has gone gets no bit among the readers, which
// nobody would know of.
func TestSharedLockOfAnOldSession(t *testing.T) {
	c := &Client{s: new(session), bits: map[int]*bit{}}
	old := new(session)
	_, _, _, err := c.joinShare(old, 0)
	require.ErrorIs(t, err, ErrLost)
	require.Empty(t, c.bits)
	b, joined, wait, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.False(t, joined)
	require.Nil(t, wait)
	other, joined, wait, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.Nil(t, other)
	require.False(t, joined)
	require.NotNil(t, wait, "one bit is added once at a time")
	c.bits = map[int]*bit{} // as Reconnect does
	c.endShare(b)
	<-wait
	require.Empty(t, c.bits)
}
