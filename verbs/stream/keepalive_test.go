//go:build linux

package stream_test

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/stream"
)

// A read that waits fails when the peer cannot be reached any more.
func TestKeepAliveOfStreams(t *testing.T) {
	lab.RequireTopology(t, "wire")
	rig.CMPorts(t)
	m := rig.NewCM(t)
	a, b := streamPair(t, m, stream.Config{Buffer: 4096, KeepAlive: 200 * time.Millisecond})
	_, err := a.Write([]byte("hello"))
	require.NoError(t, err)
	buf := make([]byte, 5)
	_, err = b.Read(buf)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.Read(buf)
		ended <- err
	}()
	select {
	case err := <-ended:
		require.NoError(t, err, "while the peer is there")
	case <-time.After(time.Second):
	}
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	require.ErrorIs(t, <-ended, syscall.ECONNRESET)
	<-b.Conn().Done()
	require.ErrorIs(t, b.Conn().Err(), verbs.ErrUnreachable)
}

// Close does not wait for peers that are gone, of which a server may have many: the
// transport alone takes half a second to give up on each.
func TestCloseDoesNotWaitForTheDead(t *testing.T) {
	lab.RequireTopology(t, "wire")
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	var all []*stream.Conn
	for range 12 {
		a, b, err := newStreams(p, m, stream.Config{Buffer: 4096})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		_, err = a.Write([]byte("long ago"))
		require.NoError(t, err)
		all = append(all, a)
	}
	time.Sleep(2100 * time.Millisecond)
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	begun := time.Now()
	for _, a := range all {
		require.NoError(t, a.Close())
	}
	require.Less(t, time.Since(begun), 3*time.Second, "12 streams")
}

// Credit finds a queue that is full of messages with completions still to be polled: it
// waits, and the stream goes on.
func TestCreditWaitsForRoom(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	a, b := streamPair(t, m, stream.Config{Buffer: 4096, Messages: 8})
	release := sync.OnceFunc(stream.HoldSends(a))
	defer release()
	const n = 2000
	sent := make(chan error, 1)
	go func() {
		for range n {
			if _, err := b.Write([]byte("x")); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	timer := time.AfterFunc(2*time.Second, release)
	defer timer.Stop()
	_, err := io.ReadFull(a, make([]byte, n))
	require.NoError(t, err)
	require.NoError(t, <-sent)
}
