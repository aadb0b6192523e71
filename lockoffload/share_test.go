package lockoffload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// A call of a session that has gone gets no bit among the readers: the client would not
// know of it.
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

// A shared lock is its holders' until the last one gives it back. A holder that comes while
// it is on its way back waits, and takes it anew.
func TestSharedLockOnItsWayBack(t *testing.T) {
	c := &Client{s: new(session), bits: map[int]*bit{}}
	b, _, _, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	b.held, b.refs = true, 1
	got, joined, _, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.True(t, joined)
	require.Same(t, b, got)
	require.False(t, c.dropShare(b), "there is another holder")
	require.True(t, c.dropShare(b))
	_, joined, wait, err := c.joinShare(c.s, 0)
	require.NoError(t, err)
	require.False(t, joined)
	require.NotNil(t, wait)
	c.endShare(b)
	<-wait
}

// The owner number alone does not make a session: another client had it before.
func TestLiving(t *testing.T) {
	s := &Server{sessions: map[uint16]*Session{3: {info: SessionInfo{Owner: 3, Epoch: 7}}}}
	require.True(t, s.living(memory.MakeTag(3, 7, 1)))
	require.False(t, s.living(memory.MakeTag(3, 8, 1)))
	require.False(t, s.living(memory.MakeTag(4, 7, 1)))
}
