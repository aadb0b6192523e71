//go:build linux && cgo

package dc

import (
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

func newTestHandles(t *testing.T, limit int) *handles {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	s := &handles{}
	s.init(&Control{pd: pd, log: slog.New(slog.DiscardHandler)}, limit)
	require.NoError(t, s.c.gid.init(d, verbs.GIDEntry{Port: 1}, nil))
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

func portAt(n int) way {
	return way{gid: wire.GID{10: 0xff, 11: 0xff, 14: byte(n >> 8), 15: byte(n)}}
}

func (s *handles) use(t *testing.T, n int) *handle {
	t.Helper()
	h, err := s.find(portAt(n))
	require.NoError(t, err)
	s.put(h)
	return h
}

// TestHandlesAreCapped: the one that was used longest ago goes, unless it is in
// use, and those that go are closed when no send can name them any more.
func TestHandlesAreCapped(t *testing.T) {
	s := newTestHandles(t, 3)
	held, err := s.find(portAt(0))
	require.NoError(t, err)
	for n := 1; n <= 2; n++ {
		s.use(t, n)
	}
	require.Same(t, held, s.get(portAt(0)), "there is one for each port")
	s.put(held)
	first := s.use(t, 1) // again: 2 is the oldest now that is not in use
	s.c.posted.Add(1)
	s.use(t, 3)
	require.Nil(t, s.get(portAt(2)))
	require.Same(t, first, s.use(t, 1))
	require.Len(t, s.at, 3)
	require.Len(t, s.retired, 1, "a send may still name it")
	for n := 4; n < 400; n++ {
		s.c.posted.Add(1)
		s.c.gone.Store(s.c.posted.Load() / 2)
		s.use(t, n)
		require.LessOrEqual(t, len(s.at), 3)
		require.Equal(t, (n-1)/2, len(s.retired), "of so many no send has completed since")
		require.NotNil(t, s.at[portAt(0)], "it is being used")
	}
	s.put(held)
	s.c.gone.Store(s.c.posted.Load() - 1)
	s.completed()
	require.Len(t, s.retired, 1)
	for n := 400; n < 403; n++ {
		s.use(t, n)
	}
	require.Nil(t, s.at[portAt(0)], "nobody uses it any more")
	s.c.gone.Store(s.c.posted.Load())
	s.completed()
	require.Empty(t, s.retired)
}

// TestHandlesExpire when the local address changes: also one that is being used, as soon as
// it is not, and one that is being made.
func TestHandlesExpire(t *testing.T) {
	s := newTestHandles(t, 3)
	held, err := s.find(portAt(0))
	require.NoError(t, err)
	s.use(t, 1)
	handlesNow()
	s.expire()
	_, closed := handlesNow()
	require.Equal(t, 1, closed)
	require.Nil(t, s.get(portAt(0)))
	again, err := s.find(portAt(0))
	require.NoError(t, err)
	require.NotSame(t, held, again)
	handlesNow()
	s.put(held)
	_, closed = handlesNow()
	require.Equal(t, 1, closed)
	require.Same(t, again, s.get(portAt(0)))
	s.put(again)
	s.put(again)
}

// TestOldHandles are made anew when they are used, as the neighbour may have another
// link-layer address now. If the neighbour is not found, the old one stays.
func TestOldHandles(t *testing.T) {
	s := newTestHandles(t, 3)
	age := func(h *handle, by time.Duration) {
		s.mu.Lock()
		h.made = time.Now().Add(-by)
		s.mu.Unlock()
		s.age(h)
		s.c.work.Wait()
	}
	h, err := s.find(portAt(0))
	require.NoError(t, err)
	age(h, -time.Hour)
	require.Same(t, h, s.at[portAt(0)])
	standin.Refuse("create_ah", syscall.EHOSTUNREACH)
	age(h, 2*handleAge)
	require.Same(t, h, s.at[portAt(0)])
	require.Less(t, time.Since(h.made), time.Hour)
	require.False(t, h.renewing)
	handlesNow()
	age(h, 2*handleAge)
	next := s.at[portAt(0)]
	require.NotSame(t, h, next)
	made, closed := handlesNow()
	require.Equal(t, []int{1, 0}, []int{made, closed}, "it is being used")
	s.put(h)
	_, closed = handlesNow()
	require.Equal(t, 1, closed)
	require.Zero(t, s.renewing)

	s.renewing = maxSought
	age(next, 2*handleAge)
	require.Same(t, next, s.at[portAt(0)], "many others are being made")
	s.renewing = 0
	h = s.get(portAt(0))
	s.expire()
	s.renewing = 1
	s.renew(h) // which had begun
	require.Empty(t, s.at)
	s.put(h)
}

// TestUnsentAreCapped: messages that wait for the handles of their ports are kept up to a
// bound, for each port and for all, and those beyond it are counted. So unauthenticated peers that
// name many ports cost neither memory nor goroutines.
func TestUnsentAreCapped(t *testing.T) {
	s := newTestHandles(t, 3)
	want := func(n int) { s.want(wire.ControlAddress{GID: portAt(n).gid}, &wire.Message{Peer: uint32(n)}) }
	s.wanted[portAt(0)] = make([]unsent, maxUnsent-1)
	want(0)
	require.Len(t, s.wanted[portAt(0)], maxUnsent)
	require.Zero(t, s.c.dropped.Load())
	want(0)
	require.Len(t, s.wanted[portAt(0)], maxUnsent)
	require.EqualValues(t, 1, s.c.dropped.Load())
	for n := 1; n < maxSought-1; n++ {
		s.wanted[portAt(n)] = make([]unsent, 1)
	}
	// There is room for one more, which is sought, in vain.
	standin.Refuse("create_ah", syscall.EHOSTUNREACH)
	want(maxSought - 1)
	s.c.work.Wait()
	require.NotContains(t, s.wanted, portAt(maxSought-1))
	require.EqualValues(t, 2, s.c.dropped.Load(), "nobody is there")
	s.wanted[portAt(maxSought-1)] = make([]unsent, 1)
	want(maxSought)
	s.c.work.Wait()
	require.NotContains(t, s.wanted, portAt(maxSought))
	require.EqualValues(t, 3, s.c.dropped.Load())
	require.NotContains(t, standin.Recorded(), "create_ah global=1 gid=..40", "it was not sought")
	want(1)
	require.Len(t, s.wanted[portAt(1)], 2, "one that is sought already takes more")
}
