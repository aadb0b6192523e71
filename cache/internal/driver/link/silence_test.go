package link

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testconn"
)

// A host is gone that has acknowledged nothing of what was sent, for as long as one may be silent, and
// not before. What was sent long after the last acknowledgement makes no host gone, nor does a probe
// of a full window that is acknowledged.
func TestSilentHostsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s silence
		var acked, sent time.Time
		look := func(a acknowledged) bool {
			time.Sleep(looks)
			a.lastAck, a.lastSent = time.Since(acked), time.Since(sent)
			return s.gone(time.Now(), a)
		}
		waits, probe, idle := acknowledged{waits: true}, acknowledged{waits: true, probes: true}, acknowledged{}
		acked, sent = time.Now(), time.Now()
		time.Sleep(time.Hour)
		sent = time.Now()
		for _, a := range []acknowledged{waits, probe} {
			for n := range int(Silence / looks) {
				require.Equal(t, n == int(Silence/looks)-1, look(a), n)
			}
			s = silence{}
		}
		for range 3 {
			require.False(t, look(waits))
		}
		require.False(t, look(idle), "all has been acknowledged")
		for range 10 {
			require.False(t, look(waits))
			acked = time.Now().Add(-time.Millisecond)
			sent = time.Now()
			time.Sleep(looks / 2)
		}
		acked = time.Now() // of the last that was sent again: the next time may be long after
		for range 10 {
			require.False(t, look(waits))
		}
		for range 10 { // probes that are acknowledged, of which a look may see one under way
			require.False(t, look(probe))
			acked = time.Now()
			require.False(t, look(idle))
			require.False(t, look(probe))
			acked = time.Now()
		}
	})
}

// A program that hangs with a full window keeps its connection, for longer than a host may be silent, and has all
// when it goes on. Short: TCP's own limit would be 10 s.
func TestFullWindowsAreKept(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	near, far := testconn.TCP(t)
	s := NewStream(t.Context(), near, 0)
	const long = 64 << 20
	written := make(chan error, 1)
	go func() { written <- s.Write(context.Background(), make([]byte, long)) }()
	time.Sleep(Silence + 5*time.Second)
	n, err := io.CopyN(io.Discard, far, long)
	require.NoError(t, err)
	require.EqualValues(t, long, n)
	require.NoError(t, <-written)
}

// There are looks while something is under way, by both kinds of streams, and the end says why.
func TestStreamsAreWatched(t *testing.T) {
	for _, kind := range []func(context.Context, net.Conn, int) *Stream{NewStream, NewPartingStream} {
		near, far := testconn.TCP(t)
		s := kind(t.Context(), near, 0)
		require.False(t, s.watch.armed.Load())
		require.NoError(t, s.Write(t.Context(), []byte("said")))
		require.True(t, s.watch.armed.Load())
		_, err := io.ReadFull(far, make([]byte, 4))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			a, ok := acknowledgedOf(near)
			return ok && !a.waits && !a.unsent
		}, time.Minute, time.Millisecond)
		s.watch.look()
		require.False(t, s.watch.armed.Load(), "nothing is under way")

		full := make(chan error, 1)
		go func() { full <- s.Write(t.Context(), make([]byte, 64<<20)) }()
		require.Eventually(t, func() bool { a, _ := acknowledgedOf(near); return a.unsent && !a.waits }, time.Minute, time.Millisecond)
		s.watch.look()
		require.True(t, s.watch.armed.Load())
		s.watch.silent.Store(true)
		abandon(near)
		require.NoError(t, near.Close())
		require.ErrorIs(t, <-full, errSilent)
		_, err = s.Next(t.Context())
		require.ErrorIs(t, err, errSilent)
		s.watch.look() // of what is closed
	}
}
