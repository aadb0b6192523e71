package cache

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// nobody returns addresses without a listener, and no other process can listen there while the test runs.
func nobody(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, syscall.Close(fd)) })
		require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		at, err := syscall.Getsockname(fd)
		require.NoError(t, err)
		out = append(out, fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port))
	}
	return out
}

// DialCluster fails if no server can be reached, with the reason for each.
func TestClusterOfNobody(t *testing.T) {
	addresses := nobody(t, 3)
	_, err := DialCluster(t.Context(), addresses, ClusterConfig{GatherTimeout: time.Hour})
	require.Error(t, err)
	for _, a := range addresses {
		require.ErrorContains(t, err, a+": dial tcp")
	}
	_, err = DialCluster(t.Context(), nil, ClusterConfig{})
	require.ErrorContains(t, err, "no list of servers")
	_, err = DialCluster(t.Context(), []string{"a:1", "b:1", "a:1"}, ClusterConfig{})
	require.ErrorContains(t, err, `"a:1"`)
	for _, wrong := range []Config{{MaxRecord: -1}, {Key: []byte{}}, {Key: make([]byte, 15)}} {
		_, err = DialCluster(t.Context(), addresses, ClusterConfig{Config: wrong})
		require.ErrorIs(t, err, verbs.ErrAttributes)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = DialCluster(ended, addresses, ClusterConfig{})
	require.Error(t, err)
}

// With FailFast no call waits for a connection, and the error says why there is none.
func TestFailFast(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for a call that waits all the same
	defer cancel()
	c, err := newClient(nobody(t, 1)[0], Config{FailFast: true})
	require.NoError(t, err)
	_, err = c.Get(ctx, []byte("key"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, errConnecting)
	go c.keep(nil)
	require.Error(t, c.tried(ctx))
	_, err = c.Get(ctx, []byte("key"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, c.address+": dial tcp")
	for _, err := range []error{
		c.Set(ctx, []byte("key"), Item{}, 0),
		c.SetMulti(ctx, []Entry{{Key: []byte("key")}}, nil)[0],
		c.GetMulti(ctx, [][]byte{[]byte("key")}, nil)[0].Err,
	} {
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrOutcomeUnknown)
	}
	require.NoError(t, c.Close())
	_, err = c.Get(ctx, []byte("key"))
	require.ErrorIs(t, err, ErrClosed)
}

// A missing server is a miss only where that was chosen, and only to what reads.
func TestMissWhenDown(t *testing.T) {
	down := errors.Join(ErrUnavailable, errNoReply)
	require.NotErrorIs(t, (&Cluster{}).missed(down), ErrNotFound)
	err := (&Cluster{cfg: ClusterConfig{MissWhenDown: true}}).missed(down)
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, (&Cluster{cfg: ClusterConfig{MissWhenDown: true}}).missed(ErrClosed), ErrNotFound)
	require.NoError(t, (&Cluster{cfg: ClusterConfig{MissWhenDown: true}}).missed(nil))
}
