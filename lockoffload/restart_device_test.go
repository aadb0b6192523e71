//go:build linux

package lockoffload_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

// restarting is a target that can be started anew at its address.
type restarting struct {
	t         *testing.T
	near, far end
	cfg       lockoffload.ListenConfig
	lis       *lockoffload.Listener
}

func newRestarting(t *testing.T, lease time.Duration) *restarting {
	requireWire(t)
	r := &restarting{t: t, near: open(t, wire[0]), far: open(t, wire[1])}
	r.cfg = lockoffload.ListenConfig{Layout: lockoffload.Layout{Slots: 2, Size: 8, Records: 2, Clients: 4, Swap: 8}, Key: testKey, Lease: lease, GID: r.far.gid}
	r.start("127.0.0.1:0", -1)
	t.Cleanup(func() { require.NoError(t, r.lis.Close()) })
	return r
}

func (r *restarting) start(at string, grace time.Duration) {
	var err error
	r.cfg.Grace = grace
	r.lis, err = lockoffload.Listen(r.far.pd, at, r.cfg)
	require.NoError(r.t, err)
}

func (r *restarting) restart(grace time.Duration) {
	at := r.lis.Addr().String()
	require.NoError(r.t, r.lis.Close())
	r.start(at, grace)
}

func (r *restarting) dial(ctx context.Context) *lockoffload.Client {
	c, err := lockoffload.Dial(ctx, r.near.pd, r.lis.Addr().String(), lockoffload.DialConfig{Key: testKey, GID: r.near.gid})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() }) // its target may be gone
	return c
}

// A target that was started anew is another one: clients do not go on there, and what they
// have seen of the one before is not there again.
func TestRestartedTargetIsAnotherOne(t *testing.T) {
	ctx := within(t, stuck)
	r := newRestarting(t, short)
	c := r.dial(ctx)
	caller, err := lockoffload.DialAgent(ctx, r.near.pd, r.lis.Addr().String(), lockoffload.DialConfig{Key: testKey, GID: r.near.gid})
	require.NoError(t, err)
	defer caller.Close()
	chain := func() *lockoffload.Chain {
		return &lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{readOf(1, 8), writeOf(1, "chain")}}
	}
	before := chain()
	_, err = caller.Do(ctx, before)
	require.NoError(t, err)
	_, swapped, err := c.SwapRead(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	swapped, err = c.SwapWrite(ctx, 0, swapped.Version, []byte("one"))
	require.NoError(t, err)
	lock := func(c *lockoffload.Client) (token uint64, err error) {
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Token: true})
		if err != nil {
			return 0, err
		}
		return h.Token(), h.Unlock(ctx)
	}
	var token uint64
	for range 5 {
		token, err = lock(c)
		require.NoError(t, err)
	}

	r.restart(-1)
	calls := 0
	err = c.Retry(ctx, func() error { calls++; _, err := lock(c); return err })
	require.ErrorIs(t, err, lockoffload.ErrRestarted)
	require.False(t, lockoffload.IsConnectionError(err), "to redial does not help")
	require.Equal(t, 1, calls)
	require.ErrorIs(t, c.Redial(ctx), lockoffload.ErrRestarted)
	for err = nil; !errors.Is(err, lockoffload.ErrRestarted); { // its connection may not have broken yet
		_, err = caller.Do(ctx, chain())
		require.Error(t, err)
	}

	c = r.dial(ctx)
	now, err := lock(c)
	require.NoError(t, err)
	require.Greater(t, now, token)
	_, err = c.SwapWrite(ctx, 0, swapped.Version-1, []byte("again"))
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	_, err = c.SwapWrite(ctx, 0, swapped.Version, []byte("two"))
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	_, res, err := c.SwapRead(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Greater(t, res.Version, swapped.Version)
	for _, seen := range before.Accesses {
		for record := range 2 {
			_, err = c.Do(ctx, &lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{compareWith(record, seen.Version), writeOf(record, "stale")}})
			require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
		}
	}
}

// While a client may rely on a lock of a target before, a target that was started anew gives
// the lock to no other client.
func TestRestartedTargetWaitsForLeases(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRestarting(t, short)
	h, _, err := r.dial(ctx).Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	r.restart(0)
	next, _, err := r.dial(ctx).Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	select {
	case <-h.Lost():
	default:
		t.Error("two clients rely on the lock")
	}
	require.NoError(t, next.Unlock(ctx))
}

// A client of the target's own process waits like others, and a program that admits clients
// itself is told.
func TestGrace(t *testing.T) {
	ctx := within(t, stuck)
	r := newRestarting(t, time.Second)
	began := time.Now()
	r.restart(200 * time.Millisecond)
	own, err := r.lis.Local(lockoffload.Retry{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	require.NoError(t, own.Close())

	r.restart(stuck)
	_, err = r.lis.Admit()
	require.ErrorIs(t, err, lockoffload.ErrStarting)
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	tries := 0
	_, err = lockoffload.Dial(cancelled, r.near.pd, r.lis.Addr().String(), lockoffload.DialConfig{
		Key: testKey, GID: r.near.gid,
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if tries++; tries == 3 {
				cancel()
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	require.ErrorIs(t, err, lockoffload.ErrStarting)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, tries)
	waits := make(chan error)
	go func() {
		_, err := r.lis.Local(lockoffload.Retry{})
		waits <- err
	}()
	require.NoError(t, r.lis.Close())
	require.ErrorIs(t, <-waits, lockoffload.ErrStarting, "until the target is closed")
}

// A target that ends the session of a client that lives gives the client's lock to others
// when that one has been told, by its lease if by nothing else, unless the target knows
// better.
func TestEndedSessionIsToldBeforeOthersLock(t *testing.T) {
	t.Parallel()
	requireLost := func(t *testing.T, h *lockoffload.Lock) {
		t.Helper()
		select {
		case <-h.Lost():
		default:
			t.Error("two clients rely on the lock")
		}
	}
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		ctx := within(t, stuck)
		r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, short)
		c, s := r.client(lockoffload.Retry{})
		other, _ := r.client(lockoffload.Retry{})
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		<-s.Done()
		next, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		requireLost(t, h)
		require.NoError(t, next.Unlock(ctx))
		require.NoError(t, s.Close())
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		ctx := within(t, stuck)
		r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, short)
		c, s := r.client(lockoffload.Retry{})
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		require.NoError(t, r.srv.Close())
		<-s.Done()
		srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: short})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		r.srv = srv
		other, _ := r.client(lockoffload.Retry{})
		next, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		requireLost(t, h)
		require.NoError(t, next.Unlock(ctx))
	})
	t.Run("evicted", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
		c, s := r.client(lockoffload.Retry{})
		_, _, err := c.Lock(within(t, stuck), 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Evict())
		lock, _ := r.reg.Left(0)
		require.Zero(t, lock)
	})
}
