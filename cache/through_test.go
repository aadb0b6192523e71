package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// What a server says of its target is believed if it was sealed in this greeting, and unchanged.
func TestTargetIsSealed(t *testing.T) {
	key := []byte("a key of sixteen")
	greeted := func() (client, server greet.Seal) {
		c := greet.NewClient(greet.DC, "tenant", key)
		s := greet.NewServer(c.Hello(), key)
		proof, err := c.Challenged(s.Challenge())
		require.NoError(t, err)
		verdict, err := s.Proved(proof, true)
		require.NoError(t, err)
		require.NoError(t, c.Judged(verdict))
		return c.Seal(), s.Seal()
	}
	mine, theirs := greeted()
	_, others := greeted()
	said := wire.Target{Epoch: 1, Number: 2, Key: 3, Address: []byte("address"), Regions: []byte("regions")}
	sealed := func(s greet.Seal) wire.Target {
		told := said
		told.Seal = s.Of(told.Said())
		return told
	}
	s := session{seal: mine}
	good := sealed(theirs)
	got, err := s.readTarget(wire.AppendTarget(nil, &good))
	require.NoError(t, err)
	require.Equal(t, good, got)
	b := wire.AppendTarget(nil, &good)
	for i := wire.HeaderSize; i < len(b); i++ {
		b[i] ^= 1
		_, err := s.readTarget(b)
		require.Error(t, err, i)
		b[i] ^= 1
	}
	for _, bad := range []wire.Target{said, sealed(others), sealed(mine)} {
		_, err = s.readTarget(wire.AppendTarget(nil, &bad))
		require.ErrorIs(t, err, ErrDenied)
	}
	require.ErrorIs(t, s.toldTarget(b), wire.Malformed, "a session with queue pairs is told of none")
}
