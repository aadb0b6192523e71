//go:build linux

package cache_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// A server that closes waits a moment for the replies that it has sent: a client is told that its change was
// made, although the packet is lost at first. The moment is a second, which a busy machine may lose.
func TestServerThatClosesIsHeard(t *testing.T) {
	lab.NoLeftovers(t)
	var err error
	for range 3 {
		if err = changedWhileItCloses(t); err == nil {
			return
		}
		t.Log(err)
	}
	t.Fatal("none of three was told: ", err)
}

// changedWhileItCloses returns the outcome of a change while the server closes before the reply has arrived.
func changedWhileItCloses(t *testing.T) error {
	s, err := server.Listen(within(t), net.JoinHostPort(lab.Require(t, 2)[1].Addr.String(), "0"), server.Config{Memory: 4 << 20, Lease: quiet})
	require.NoError(t, err)
	defer s.Close()
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving) }()
	c := dial(t, s.Addr().String(), cache.Config{FailFast: true})
	whole(t, c, 0)
	const far = "h1"
	defer lab.Clear(far)
	require.NoError(t, lab.Impair(far, lab.Impairment{Loss: 1}))
	changed := make(chan error, 1)
	go func() { changed <- c.Set(within(t), key(1), cache.Item{Value: []byte("v")}, 0) }()
	require.Eventually(t, func() bool { return s.Stats().Sets == 1 }, stuck, time.Millisecond)
	stop()
	time.Sleep(50 * time.Millisecond) // a server that did not wait would be gone by now
	require.NoError(t, lab.Clear(far))
	err = <-changed
	require.NoError(t, <-served)
	require.NoError(t, c.Close())
	return err
}
