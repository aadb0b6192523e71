//go:build linux

package srd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// A path with a queue pair that cannot be reset is tried again, though nothing else happens, and
// whether or not the program waits meanwhile.
func TestPathIsMendedLater(t *testing.T) {
	if onEFA {
		t.Skip("a queue pair that EFA gives up ends its endpoint")
	}
	for _, waits := range []bool{false, true} {
		a, b := pair(t, srd.Config{Paths: 2})
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
		receiveOne(t, b)
		time.Sleep(50 * time.Millisecond)
		if waits {
			go a.Receive(ctxOf(t), make([]srd.Message, 1))
			time.Sleep(5 * time.Millisecond)
		}
		broken, err := a.BreakPath(1, 100*time.Millisecond)
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		require.True(t, broken())
		require.Eventually(t, func() bool { return !broken() }, time.Minute, 10*time.Millisecond)
		for range 8 {
			require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("by both")))
			receiveOne(t, b)
		}
	}
}
