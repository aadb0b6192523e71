package greet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// greeted are the seals of both sides of a greeting.
func greeted(t *testing.T, key []byte) (client, server Seal) {
	t.Helper()
	c := NewClient(Hello{Transport: RDMA, Tenant: "tenant"}, key)
	s := NewServer(c.Hello(), key)
	proof, err := c.HandleChallenge(s.Challenge())
	require.NoError(t, err)
	if len(key) > 0 {
		require.NoError(t, s.HandleProof(proof))
		require.NoError(t, c.HandleVerdict(s.Last(nil)))
	}
	return c.Seal(), s.Seal()
}

// What one side seals the other takes: nothing else, not what it has sealed itself, and not what
// was sealed after another greeting with the same key. A key that one has does not help without the
// greeting, nor a greeting that one has heard without the key.
func TestSeal(t *testing.T) {
	client, server := greeted(t, key)
	said := []byte("queue pair 17")
	require.NoError(t, server.Check(said, client.Of(said)))
	require.NoError(t, client.Check(said, server.Of(said)))
	for i := range said {
		other := []byte(string(said))
		other[i] ^= 1
		require.ErrorIs(t, server.Check(other, client.Of(said)), ErrSeal)
	}
	seal := client.Of(said)
	for i := range seal {
		seal[i] ^= 0x80
		require.ErrorIs(t, server.Check(said, seal), ErrSeal, i)
		seal[i] ^= 0x80
	}
	require.ErrorIs(t, server.Check(said, server.Of(said)), ErrSeal, "its own, come back")
	require.ErrorIs(t, client.Check(said, client.Of(said)), ErrSeal, "its own, come back")
	again, other := greeted(t, key)
	require.ErrorIs(t, other.Check(said, client.Of(said)), ErrSeal, "of another connection")
	require.ErrorIs(t, again.Check(said, server.Of(said)), ErrSeal, "of another connection")
	require.ErrorIs(t, server.Check(said, Seal{}.Of(said)), ErrSeal, "none")
	c := NewClient(Hello{Transport: RDMA, Tenant: "tenant"}, []byte("another key of..."))
	s := NewServer(c.Hello(), key)
	_, err := c.HandleChallenge(s.Challenge())
	require.NoError(t, err)
	require.ErrorIs(t, s.Seal().Check(said, c.Seal().Of(said)), ErrSeal, "by another key")
	require.ErrorIs(t, s.Seal().Check(said, [SealSize]byte(sign(key, byClient, s.hello, s.challenge))), ErrSeal, "the proof")
}

// Without a key no connection is bound, and nothing is sealed.
func TestNothingIsSealedWithoutAKey(t *testing.T) {
	client, server := greeted(t, nil)
	require.Zero(t, client.Of([]byte("said")))
	require.NoError(t, server.Check([]byte("said"), client.Of([]byte("said"))))
	require.NoError(t, client.Check([]byte("said"), [SealSize]byte{}))
	require.ErrorIs(t, client.Check([]byte("said"), [SealSize]byte{1}), ErrSeal)
}
