//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

var testKey = []byte("a key that tests have, no secret")

// listen makes a target on rxe1, and a way to dial it from rxe0.
func listen(t *testing.T, l lockoffload.Layout, lease time.Duration) (*lockoffload.Listener, func(context.Context) (*lockoffload.Client, error)) {
	t.Helper()
	requireWire(t)
	near, far := open(t, wire[0]), open(t, wire[1])
	lis, err := lockoffload.Listen(far.pd, "127.0.0.1:0", lockoffload.ListenConfig{Layout: l, Key: testKey, Lease: lease, Grace: -1, GID: far.gid})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lis.Close()); require.NoError(t, lis.Close()) })
	return lis, func(ctx context.Context) (*lockoffload.Client, error) {
		return lockoffload.Dial(ctx, near.pd, lis.Addr().String(), lockoffload.DialConfig{Key: testKey, GID: near.gid})
	}
}

func up(old []byte) []byte { return binary.LittleEndian.AppendUint64(nil, number(old)+1) }

func upOnce(ctx context.Context, c *lockoffload.Client) error {
	_, err := c.Update(ctx, 0, func(old []byte) ([]byte, error) { return up(old), nil })
	return err
}

// One address, one call: locks, the agent, and a client of the target's own process.
func TestListenAndDial(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 2, Size: 8}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	require.NoError(t, upOnce(ctx, c))
	res, err := c.Do(ctx, &lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{writeOf(0, "by agent")}})
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolAgent, res.Protocol)
	own, err := lis.Local(lockoffload.Retry{})
	require.NoError(t, err)
	require.NoError(t, upOnce(ctx, own))
	data, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, 2, number(data))
	h, _, err := own.Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	_, _, err = c.Lock(ctx, 1, lockoffload.LockOptions{Tries: 1})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, own.Close())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.NoError(t, lis.Err())
}

// Clients may dial the agent alone, and go on when it has been replaced.
func TestDialAgent(t *testing.T) {
	ctx := within(t, stuck)
	requireWire(t)
	near, far := open(t, wire[0]), open(t, wire[1])
	cfg := lockoffload.ListenConfig{
		Layout: lockoffload.Layout{Slots: 2, Size: 8, Records: 3}, Key: testKey, GID: far.gid,
	}
	lis, err := lockoffload.Listen(far.pd, "127.0.0.1:0", cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, lis.Close()) }()
	way := lockoffload.DialConfig{Key: testKey, GID: near.gid}
	_, err = lockoffload.DialAgent(ctx, near.pd, lis.Addr().String(), lockoffload.DialConfig{Key: []byte("another key altogether"), GID: near.gid})
	require.ErrorIs(t, err, lockoffload.ErrDenied)

	c, err := lockoffload.DialAgent(ctx, near.pd, lis.Addr().String(), way)
	require.NoError(t, err)
	chain := lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{readOf(2, 8), writeOf(2, "by agent")}}
	_, err = c.Do(ctx, &chain)
	require.NoError(t, err, "it knows the layout")
	require.Equal(t, chain.Accesses[0].Version+1, chain.Accesses[1].Version)
	lis.StopAgent()
	require.Eventually(t, func() bool {
		_, err := c.Do(ctx, &chain)
		require.True(t, err == nil || errors.Is(err, lockoffload.ErrOutcomeUnknown), "%v", err)
		return err == nil
	}, stuck, time.Millisecond)
	require.Equal(t, "by agent", string(chain.Accesses[0].Data))
	require.NoError(t, lis.Err())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return lis.AgentClients() == 0 }, stuck, time.Millisecond)
}

// A client that has come back by another connection is not forgotten when the one before
// ends.
func TestAgentKeepsWhoCameBack(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, lis.AgentClients())
	require.NoError(t, lis.DetachBefore())
	require.Equal(t, 1, lis.AgentClients())
	res, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolAgent, res.Protocol)
	require.NoError(t, c.Close())
}

// The place of a client of the target's own process is free when that is closed, however
// long its lease.
func TestLocalPlaceIsGivenBack(t *testing.T) {
	ctx := within(t, stuck)
	lis, _ := listen(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 1}, long)
	for i := range 3 {
		c, err := lis.Local(lockoffload.Retry{})
		require.NoError(t, err)
		require.NoError(t, upOnce(ctx, c))
		if i == 1 {
			require.NoError(t, c.QP().ToError())
			_, _, err := c.Read(ctx, 0, make([]byte, 8))
			require.True(t, lockoffload.IsConnectionError(err))
		}
		require.NoError(t, c.Close())
	}
}

// A client of the target's own process waits in the agent's queue with all others, also
// when the agent has been replaced.
func TestLocalTakesTurns(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	own, err := lis.Local(lockoffload.Retry{})
	require.NoError(t, err)
	for range 2 {
		taken := func() uint64 { n := lis.AgentStats(); return n.Turns - n.Lapsed } // a busy machine may let one lapse
		before := taken()
		h, _, err := c.Lock(ctx, 0, fair)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			h, _, err := own.Lock(ctx, 0, fair)
			if err == nil {
				err = h.Unlock(ctx)
			}
			got <- err
		}()
		require.Eventually(t, func() bool { return lis.Queued(0) == 1 }, stuck, time.Millisecond)
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, <-got)
		require.Equal(t, before+2, taken())
		require.NoError(t, lis.BreakAgent())
		for _, c := range []*lockoffload.Client{c, own} {
			require.NoError(t, c.Retry(ctx, func() error { return incrementHeld(ctx, c, lockoffload.Fair) }))
		}
	}
	require.NoError(t, own.Close())
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return lis.AgentClients() == 0 }, stuck, time.Millisecond)
}

// The target has no agent for so long that clients give up: when it has one again, those
// that had one before use it, and wait for their turns there, without being told.
func TestAgentIsFoundAgain(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	form := func() lockoffload.Protocol {
		res, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		require.True(t, err == nil || errors.Is(err, lockoffload.ErrOutcomeUnknown), "%v", err)
		return res.Protocol
	}
	require.Equal(t, lockoffload.ProtocolAgent, form())
	require.Eventually(t, func() bool { lock, _ := lis.Left(0); return lock == 0 }, stuck, time.Millisecond, "or it stays until there is an agent")
	giveBack, err := lis.LoseAgent()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return form() == lockoffload.ProtocolTwoStep }, stuck, 10*time.Millisecond)
	require.Error(t, lis.Err())
	giveBack()
	require.Eventually(t, func() bool { return lis.Err() == nil }, stuck, 10*time.Millisecond)
	require.Eventually(t, func() bool { return form() == lockoffload.ProtocolAgent }, soon, 10*time.Millisecond)
	h, _, err := c.Lock(ctx, 0, fair)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
}

// Clients that come and go leave their places to others, the agent's too.
func TestDialedPlacesAreGivenBack(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2}, time.Second)
	for range 6 {
		var c *lockoffload.Client
		require.Eventually(t, func() (done bool) {
			var err error
			c, err = dial(ctx)
			if err != nil {
				require.ErrorIs(t, err, lockoffload.ErrFull)
			}
			return err == nil
		}, stuck, 10*time.Millisecond)
		_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return lis.AgentClients() == 0 }, stuck, time.Millisecond)
	require.Zero(t, lis.Stats().Expired)
}

// Without the key nothing is changed, and silent connections do not delay others.
func TestUnauthenticatedClients(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2}, long)
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	for range 300 {
		c, err := net.Dial("tcp", lis.Addr().String())
		require.NoError(t, err)
		idle = append(idle, c)
	}
	other := open(t, wire[0])
	for _, key := range []string{"a key that tests have, no secreT", "another key altogether"} {
		_, err := lockoffload.Dial(ctx, other.pd, lis.Addr().String(), lockoffload.DialConfig{Key: []byte(key), GID: other.gid})
		require.ErrorIs(t, err, lockoffload.ErrDenied)
	}
	_, err := lockoffload.Dial(ctx, other.pd, lis.Addr().String(), lockoffload.DialConfig{Key: []byte("short")})
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	require.Zero(t, lis.Stats().Admitted)
	require.Zero(t, lis.AgentClients())
	began := time.Now()
	c, err := dial(ctx)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 4*time.Second, "no idle connection was waited for")
	require.NoError(t, c.Close())
}

// A client goes on with a new connection, by whichever of its goroutines finds out, and
// with another agent when that has failed.
func TestRedial(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 8}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Redial(ctx), "nothing to be done")
	require.EqualValues(t, 1, lis.Stats().Admitted)
	require.NoError(t, c.QP().ToError())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := c.Retry(ctx, func() error { return upOnce(ctx, c) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 2, lis.Stats().Admitted)
	data, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, 4, number(data))

	require.NoError(t, lis.BreakAgent())
	require.Eventually(t, func() bool {
		res, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "again")}})
		if err != nil {
			require.True(t, errors.Is(err, lockoffload.ErrOutcomeUnknown) || lockoffload.IsConnectionError(err), "%v", err)
			require.NoError(t, c.Redial(ctx))
		}
		return err == nil && res.Protocol == lockoffload.ProtocolAgent
	}, stuck, 10*time.Millisecond)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Redial(ctx), lockoffload.ErrClosed)
}
