package cluster

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silentEtcd returns the address of an etcd that accepts connections and never replies.
func silentEtcd(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// A member of etcd that does not reply to a user for the first time takes nothing of the time of calls that end before, nor of close.
func TestConnectEndsWithItsContext(t *testing.T) {
	const long = time.Minute
	s := openStore(&Config{Name: "test", Etcd: []string{silentEtcd(t)}, User: "u", Password: "p", TTL: maxTTL}, long)
	begun := time.Now()
	waiting, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, err := s.read(waiting)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.Eventually(t, func() bool {
		e := s.endpoints[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.conn != nil
	}, long, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.read(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	stop()
	running.Wait()
	require.NoError(t, s.close())
	require.Less(t, time.Since(begun), long/2)
	_, err = s.read(t.Context())
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.close())
}

// A connection that fails is made anew for the next call.
func TestConnectTriesAgain(t *testing.T) {
	s := openStore(&Config{Name: "test", Etcd: []string{silentEtcd(t)}, User: "u", Password: "p", TTL: minTTL}, 10*time.Millisecond)
	defer s.close()
	e := s.endpoints[0]
	for range 2 {
		_, err := e.connect(t.Context())
		require.ErrorContains(t, err, context.DeadlineExceeded.Error())
		require.Nil(t, e.conn)
	}
}

// An etcd that was away for long is reached within a TTL when it is back.
func TestConnectsAgainSoon(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	s := openStore(&Config{Name: "test", Etcd: []string{"http://" + address}, TTL: 100 * time.Millisecond}, 25*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_, err := s.read(ctx)
			require.Error(t, err)
			time.Sleep(10 * time.Millisecond)
		}
	})
	time.Sleep(1300 * time.Millisecond)
	l, err = net.Listen("tcp", address)
	require.NoError(t, err)
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(500*time.Millisecond)))
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	stop()
	running.Wait()
	require.NoError(t, s.close())
}
