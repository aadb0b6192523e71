package server

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// A client that hangs once does not wait. Clients that are cut off again and again wait longer each time, and
// are forgotten when none of them has been for long.
func TestSlow(t *testing.T) {
	from, other := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32")
	const lease = time.Second
	s, now := slow{}, time.Now()
	for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 32, 32} {
		require.Equal(t, want*lease, s.cut(from, now, now, lease), i)
		now = now.Add(want * lease)
	}
	require.Zero(t, s.cut(other, now, now, lease))
	s.forget(now.Add(longestPause*lease), lease)
	require.Len(t, s, 2)
	s.forget(now.Add(longestPause*lease+1), lease)
	require.Empty(t, s)
	for range 100 {
		require.LessOrEqual(t, s.cut(from, now, now, time.Hour), longestPause*time.Hour)
	}
}

// Clients of one host that hang together are one time, and those that hang later, or have come since, are another.
func TestClientsThatHangTogether(t *testing.T) {
	from := netip.MustParsePrefix("10.0.0.1/32")
	const lease = time.Second
	s, came := slow{}, time.Now()
	now := came.Add(time.Hour)
	for range 100 {
		require.Zero(t, s.cut(from, came, now, lease))
	}
	require.Zero(t, s.cut(from, came, now.Add(lease-1), lease))
	require.Equal(t, lease, s.cut(from, now, now, lease), "it has come after the first")
	require.Equal(t, 2*lease, s.cut(from, came, now.Add(lease), lease), "later")
	require.Zero(t, s.cut(from, came, now.Add(lease), lease))
}

// A client that is cut off, with a queue pair or without, or that is gone without a word from the server's target,
// counts. One that says goodbye does not. A client from there waits before it may READ, and not by TCP.
func TestSilentClientsAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer s.Close()
		conn, far := net.Pipe()
		defer far.Close()
		d := &admission{turns: newTurns(1)}
		waits := func(by greet.Transport) (long time.Duration) {
			begun := time.Now()
			c := &admitted{Conn: conn}
			require.NoError(t, d.let(t.Context(), c, s, &greet.Hello{Transport: by}, quietly))
			c.connects.over()
			c.leave()
			return time.Since(begun)
		}
		through := func() (uint64, *client) {
			id, c := s.attachThrough(func(error) {}, greet.Seal{})
			s.comesFrom(c, conn)
			return id, c
		}
		late := func(id uint64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cutLate(id)
		}
		for range 3 {
			id, c := through()
			s.mu.Lock()
			s.leave(id, c)
			s.mu.Unlock()
			s.depart(id)
			require.Zero(t, waits(greet.DC))
		}
		id, _ := through()
		late(id)
		s.depart(id)
		require.Zero(t, waits(greet.DC), "it is the first")
		id, _ = through()
		s.depart(id)
		require.Zero(t, waits(greet.TCP))
		require.Equal(t, s.cfg.Lease, waits(greet.DC))
		require.Zero(t, waits(greet.RDMA), "it has waited")
		id, c := s.attach(func(error) {}, true)
		s.comesFrom(c, conn)
		late(id)
		s.detach(id)
		require.Equal(t, 2*s.cfg.Lease, waits(greet.RDMA))
	})
}

// A client that waits so is told to.
func TestSlowedClientsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer s.Close()
		s.cfg.Lease = time.Minute
		conn, far := net.Pipe()
		defer far.Close()
		c := &client{}
		s.comesFrom(c, conn)
		for range 2 {
			s.mu.Lock()
			s.punish(c)
			s.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+1)
		defer cancel()
		told := 0
		d := &admission{turns: newTurns(1)}
		err := d.let(ctx, &admitted{Conn: conn}, s, &greet.Hello{Transport: greet.DC}, waitingClient(func() error { told++; return nil }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10, told)
	})
}
