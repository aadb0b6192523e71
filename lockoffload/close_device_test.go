//go:build linux

package lockoffload_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// soon bounds calls that have nothing to wait for: a machine may be slow all the same.
const soon = 15 * time.Second

// endless is of queue pairs that send again for ever: so rxe takes 7 retries.
var endless = verbs.ConnectConfig{Retries: 7}

// isSoon fails when f takes as long as something that waits.
func isSoon(t *testing.T, what string, f func() error) {
	t.Helper()
	over := make(chan error, 1)
	go func() { over <- f() }()
	select {
	case err := <-over:
		require.NoError(t, err, what)
	case <-time.After(soon):
		t.Fatalf("%s: no end after %v", what, soon)
	}
}

// dial makes a client, with or without the target's agent.
func (e end) dial(ctx context.Context, lis *lockoffload.Listener, agent bool) (*lockoffload.Client, error) {
	return lockoffload.Dial(ctx, e.pd, lis.Addr().String(), lockoffload.DialConfig{Key: testKey, GID: e.gid, NoAgent: !agent, Connect: endless})
}

// A lease that is long, and a wire on which nothing comes through any more: Close does
// not wait for the lease to run out.
func TestCloseOnADeadWire(t *testing.T) {
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	r.way = endless
	c, _ := r.client(lockoffload.Retry{})
	_, _, err := c.Lock(within(t, stuck), 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	isSoon(t, "close", c.Close)
}

// The queue of a client is full and nothing comes through: its lease runs out all the
// same, and calls that wait for room fail.
func TestLeaseRunsOutBehindAFullQueue(t *testing.T) {
	ctx := within(t, stuck)
	lease := short
	if testing.Short() {
		lease = short / 3
	}
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, lease)
	r.way = endless
	c, _ := r.client(lockoffload.Retry{})
	_, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	var wg sync.WaitGroup
	for range 2 * c.QP().MaxSendWR() {
		wg.Go(func() {
			if _, _, err := c.Read(ctx, 0, make([]byte, 8)); !lockoffload.IsConnectionError(err) {
				t.Error(err)
			}
		})
	}
	isSoon(t, "end of the lease", func() error { <-c.Lost(); wg.Wait(); return nil })
}

// A client that is closed stops looking for a target that is gone.
func TestCloseEndsRedial(t *testing.T) {
	ctx := within(t, stuck)
	lis, dial := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, time.Second)
	c, err := dial(ctx)
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	require.NoError(t, c.QP().ToError())
	dialing := make(chan error, 2)
	for range 2 {
		go func() { dialing <- c.Retry(ctx, func() error { return upOnce(ctx, c) }) }()
	}
	time.Sleep(100 * time.Millisecond)
	isSoon(t, "close", func() error { _ = c.Close(); return nil })
	for range 2 {
		require.ErrorIs(t, <-dialing, lockoffload.ErrClosed)
	}
}

// A second Close waits for the first; afterwards nothing of the client is left,
// whatever its goroutines were doing.
func TestCloseBesideEverything(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8, Swap: 128}, long)
	holder, _ := r.client(lockoffload.Retry{})
	h, _, err := holder.Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	for i := range 12 {
		pd, err := r.a.dev.AllocPD()
		require.NoError(t, err)
		cq, err := r.a.dev.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
		require.NoError(t, err)
		s, in := r.connect(qp)
		c, err := lockoffload.NewClient(lockoffload.Config{PD: pd, QP: qp, CQ: cq, Session: in})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, f := range []func() error{
			func() error { return upOnce(ctx, c) },
			func() error { _, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{}); return err },
			func() error {
				_, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
				return err
			},
			func() error { _, _, err := c.Lock(ctx, 1, lockoffload.LockOptions{}); return err },
			func() error { _, _, err := c.SwapRead(ctx, 0, make([]byte, 8)); return err },
		} {
			for range 3 {
				wg.Go(func() {
					for err := error(nil); err == nil; { // locks that it gets it keeps
						err = f()
						if err != nil && !anyOf(err, lockoffload.ErrClosed, lockoffload.ErrBroken, lockoffload.ErrLost) {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		for range 2 {
			wg.Go(func() {
				if err := c.Close(); err != nil && !errors.Is(err, lockoffload.ErrOutcomeUnknown) {
					t.Error(err)
				}
				if err := errors.Join(qp.Close(), cq.Close(), pd.Close()); err != nil {
					t.Errorf("after Close: %v", err)
				}
			})
		}
		isSoon(t, "close", func() error { wg.Wait(); return nil })
		require.NoError(t, s.Evict())
	}
	require.NoError(t, h.Unlock(ctx))
}

// The connection breaks under a commit; the lock is given back, in vain, at once.
func TestUnlockBehindACommitThatBroke(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	for range 10 {
		c, s := r.client(lockoffload.Retry{})
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		_, err = h.Write(ctx, 0, []byte("x"))
		require.NoError(t, err)
		require.NoError(t, c.QP().ToError())
		require.ErrorIs(t, h.Commit(ctx), lockoffload.ErrOutcomeUnknown)
		require.ErrorIs(t, h.Unlock(ctx), lockoffload.ErrBroken)
		require.NoError(t, s.Evict())
		require.EqualValues(t, 0, c.Stats().Lost)
	}
}

// A client that has shown its key says nothing more: the target closes without it.
func TestListenerClosesBesideAHandshake(t *testing.T) {
	lis, _ := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	conn, err := lockoffload.HalfDial(lis.Addr().String(), testKey, open(t, wire[0]).pd)
	require.NoError(t, err)
	defer conn.Close()
	began := time.Now()
	require.NoError(t, lis.Close())
	require.Less(t, time.Since(began), 3*time.Second)
}

// An agent fails under a lock, and no client asks for it again: the lock does not stay.
func TestLockOfAFailedAgent(t *testing.T) {
	ctx := within(t, stuck)
	requireWire(t)
	near, far := open(t, wire[0]), open(t, wire[1])
	lis, err := lockoffload.Listen(far.pd, "127.0.0.1:0", lockoffload.ListenConfig{
		Layout: lockoffload.Layout{Slots: 1, Size: 8}, Key: testKey, Lease: long, Grace: -1, GID: far.gid, Agent: lockoffload.AgentConfig{MaxWait: stuck},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lis.Close()) })
	c, err := near.dial(ctx, lis, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	reader, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
	require.NoError(t, err)

	other, err := near.dial(ctx, lis, true)
	require.NoError(t, err)
	brief, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := other.Do(brief, &lockoffload.Chain{Deadline: stuck, Accesses: []lockoffload.Access{writeOf(0, "x")}})
		done <- err
	}()
	require.Eventually(t, func() bool { lock, _ := lis.Left(0); return lock != 0 }, stuck, time.Millisecond)
	tries := lis.AgentStats().Tries // the agent has the lock, and then knows of it and waits for the reader
	require.Eventually(t, func() bool { return lis.AgentStats().Tries > tries }, stuck, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, lockoffload.ErrOutcomeUnknown)
	require.NoError(t, other.Close())
	require.NoError(t, lis.BreakAgent())
	require.NoError(t, reader.Unlock(ctx))
	isSoon(t, "lock", func() error {
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
		if err == nil {
			err = h.Unlock(ctx)
		}
		return err
	})
	data, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Empty(t, data, "what was not executed by then, never is")
}

// The target replaces its agent. Its clients learn of it by their connections, also when
// their queue pairs would send for ever.
func TestAgentsClientsFollow(t *testing.T) {
	ctx := within(t, stuck)
	lis, _ := listen(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, err := open(t, wire[0]).dial(ctx, lis, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	chain := &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}}
	res, err := c.Do(ctx, chain)
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolAgent, res.Protocol)
	require.NoError(t, lis.BreakAgent())
	isSoon(t, "another agent", func() error {
		for {
			res, err := c.Do(ctx, chain)
			if res.Protocol == lockoffload.ProtocolAgent && err == nil {
				return nil
			}
			if err != nil && !errors.Is(err, lockoffload.ErrOutcomeUnknown) {
				return err
			}
		}
	})
	require.NoError(t, lis.Err())
}

// Holders of a client that is closed are told that their locks are lost before the target
// is told, which may give them to others at once. The target hears of it all the same, also
// when holders look after their locks meanwhile.
func TestHoldersHearOfCloseFirst(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, 4*time.Second)
	c, s := r.client(lockoffload.Retry{})
	h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	_, err = h.Write(ctx, 0, []byte("never"))
	require.NoError(t, err)
	told := false
	c.BeforeGoodbye(func() {
		select {
		case <-h.Lost():
			told = true
		default:
		}
		require.ErrorIs(t, h.Commit(ctx), lockoffload.ErrLost)
	})
	require.NoError(t, c.Close())
	require.True(t, told)
	<-s.Done()
	require.Eventually(t, func() bool { return r.srv.Stats().Ended == 1 }, stuck, time.Millisecond)
}
