//go:build linux

package hangup

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testconn"
)

const waitTimeout = 30 * time.Second

// The end of a connection is told, once, behind whatever comes before it; that of a connection which
// this side closes is not.
func TestPeerCloses(t *testing.T) {
	for name, ends := range map[string]func() (net.Conn, net.Conn){
		"polled": func() (net.Conn, net.Conn) { return testconn.TCP(t) },
		"read":   net.Pipe,
	} {
		t.Run(name, func(t *testing.T) {
			near, far := ends()
			told := make(chan error, 2)
			w := New(near, func(err error) { told <- err })
			_, err := far.Write(make([]byte, 100_000))
			require.NoError(t, err)
			require.Empty(t, told)
			require.NoError(t, far.Close())
			select {
			case err := <-told:
				require.ErrorIs(t, err, io.EOF)
			case <-time.After(waitTimeout):
				require.Fail(t, "nobody says so")
			}
			require.NoError(t, w.Close())

			near, far = ends()
			w = New(near, func(err error) { told <- err })
			require.NoError(t, w.Close())
			_ = far.Close()
			require.Empty(t, told)
		})
	}
}

// A connection that breaks ends too, with what is wrong.
func TestConnectionBreaks(t *testing.T) {
	near, far := testconn.TCP(t)
	told := make(chan error, 1)
	w := New(near, func(err error) { told <- err })
	defer w.Close()
	require.NoError(t, far.(*net.TCPConn).SetLinger(0)) // a reset
	require.NoError(t, far.Close())
	select {
	case err := <-told:
		require.ErrorContains(t, err, "reset")
	case <-time.After(waitTimeout):
		require.Fail(t, "nobody says so")
	}
}

// Close waits for the call that reports the end, so that what it uses may go afterwards.
func TestCloseWaits(t *testing.T) {
	near, far := testconn.TCP(t)
	begun, over := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	w := New(near, func(error) {
		close(begun)
		<-over
		ended.Store(true)
	})
	require.NoError(t, far.Close())
	<-begun
	time.AfterFunc(10*time.Millisecond, func() { close(over) })
	require.NoError(t, w.Close())
	require.True(t, ended.Load())
}

// Many connections have one goroutine, and none when they are gone; each is told of its own end.
func TestManyConnections(t *testing.T) {
	const n = 100
	var fars [n]net.Conn
	var all [n]*Watch
	told := make(chan int, n)
	for i := range n {
		var near net.Conn
		near, fars[i] = testconn.TCP(t)
		all[i] = New(near, func(error) { told <- i })
	}
	shared.mu.Lock()
	watched := len(shared.all)
	shared.mu.Unlock()
	require.Equal(t, n, watched)
	for i := range n {
		require.NoError(t, fars[i].Close())
		select {
		case which := <-told:
			require.Equal(t, i, which)
		case <-time.After(waitTimeout):
			require.Fail(t, "nobody says so")
		}
		require.NoError(t, all[i].Close())
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	require.Empty(t, shared.all)
	require.Nil(t, shared.file)
}

// Connections that come and go all the time, so that descriptors, and the goroutine, are others' soon: each
// is told of its own end, once, and none of any when Close has returned.
func TestConnectionsComeAndGo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	come := func() (near, far net.Conn, err error) {
		if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
			return nil, nil, err
		}
		far, err = l.Accept()
		return near, far, err
	}
	var dialing sync.Mutex // the goroutine that dials accepts
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for n := range 200 {
				dialing.Lock()
				near, far, err := come()
				dialing.Unlock()
				if !assert.NoError(t, err) {
					return
				}
				var told, over atomic.Int32
				heard := make(chan struct{})
				w := New(near, func(err error) {
					assert.ErrorIs(t, err, io.EOF)
					assert.Zero(t, over.Load(), "after Close")
					if assert.EqualValues(t, 1, told.Add(1)) {
						close(heard)
					}
				})
				switch (g + n) % 3 {
				case 0: // the peer is the first to close
					assert.NoError(t, far.Close())
					select {
					case <-heard:
					case <-time.After(waitTimeout):
						assert.Fail(t, "nobody says so")
					}
				case 1: // both at once
					all.Go(func() { assert.NoError(t, far.Close()) })
				case 2:
					defer far.Close()
				}
				assert.NoError(t, w.Close())
				over.Store(1)
			}
		})
	}
	all.Wait()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	require.Empty(t, shared.all)
	require.Nil(t, shared.file)
}
