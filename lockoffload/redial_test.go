package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
)

// joining is a client whose session has ended, and which counts its tries to get another.
func joining(err error) (c *Client, tries *atomic.Int32) {
	c, tries = dialed(), new(atomic.Int32)
	c.s.lose()
	c.link.join = func(context.Context) (joined, error) { tries.Add(1); return joined{}, err }
	return c, tries
}

// ends fails when f does not.
func ends(t *testing.T, f func()) {
	t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("no end")
	}
}

// An error that another try cannot mend is returned at once.
func TestRedialGivesUp(t *testing.T) {
	for _, final := range []error{ErrDenied, ErrConfig, ErrClosed, ErrRestarted} {
		c, tries := joining(fmt.Errorf("at the target: %w", final))
		ends(t, func() { require.ErrorIs(t, c.Redial(context.Background()), final) })
		require.EqualValues(t, 1, tries.Load())
	}
	require.ErrorIs(t, newClient(Config{}, memory.Layout{}, nil).Redial(context.Background()), ErrConfig, "it did not dial")
}

func TestRedialOfASessionThatLives(t *testing.T) {
	c, tries := joining(ErrRefused)
	c.s = &session{lost: make(chan struct{})}
	ends(t, func() { require.NoError(t, c.Redial(context.Background())) })
	require.Zero(t, tries.Load())
}

// The target is not asked all the time.
func TestRedialPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tries := joining(ErrFull)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		ends(t, func() { require.ErrorIs(t, c.Redial(ctx), ErrFull) })
		require.Greater(t, tries.Load(), int32(1))
		require.Less(t, tries.Load(), int32(8)) // after 10, 30, 70, 150 ms
	})
}

// A client that is closed stops looking for its target, even if a call waits for that.
func TestRedialEndsWithItsClient(t *testing.T) {
	c, tries := joining(ErrRefused)
	over := make(chan error, 2)
	for range 2 { // the second one waits for its turn
		go func() { over <- c.Redial(context.Background()) }()
	}
	require.Eventually(t, func() bool { return tries.Load() > 1 }, time.Minute, time.Millisecond)
	c.stop()
	ends(t, func() {
		for range 2 {
			require.ErrorIs(t, <-over, ErrClosed)
		}
	})
	tries.Store(0)
	ends(t, func() { require.ErrorIs(t, c.Redial(context.Background()), ErrClosed) })
	require.Zero(t, tries.Load())

	c, _ = joining(nil)
	there := make(chan struct{})
	c.link.join = func(ctx context.Context) (joined, error) { // a target that says nothing
		close(there)
		<-ctx.Done()
		return joined{}, ctx.Err()
	}
	go func() { over <- c.Redial(context.Background()) }()
	<-there
	c.stop()
	ends(t, func() { require.ErrorIs(t, <-over, ErrClosed) })
}

// A target without an agent, or without room there, is good for all the rest.
func TestHelpOfAnAgent(t *testing.T) {
	c, _ := joining(nil)
	c.s = &session{lost: make(chan struct{})}
	calls, refusal := 0, error(ErrRefused)
	c.cfg.Logger = silent()
	c.link.helper = func(context.Context, *target) (*Caller, error) { calls++; return nil, refusal }
	require.NoError(t, c.Redial(context.Background()))
	require.Equal(t, 1, calls)
	refusal = fmt.Errorf("%w: limits", ErrConfig)
	require.ErrorIs(t, c.Redial(context.Background()), ErrConfig)

	c.link.agent = &Caller{done: make(chan struct{})} // which lives
	calls = 0
	require.NoError(t, c.Redial(context.Background()))
	require.Zero(t, calls)

	c.link.agent = &Caller{done: past, closed: errOnce} // which is gone, and its connection cannot be closed
	c.link.agent.closing.Do(func() {})
	refusal = ErrRefused
	require.NoError(t, c.Redial(context.Background()))
	require.Equal(t, 1, calls)
	require.Nil(t, c.link.agent)
}

// An agent that was there once is looked for, once a second; one that never was is not.
func TestAgentIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := joining(nil)
		c.cfg.Logger = silent()
		calls := 0
		c.link.helper = func(context.Context, *target) (*Caller, error) { calls++; return nil, ErrRefused }
		looks := func() int {
			calls = 0
			for range 100 {
				c.regainAgent()
				time.Sleep(25 * time.Millisecond)
			}
			synctest.Wait()
			return calls
		}
		require.Zero(t, looks())
		_, err := c.fairAgent()
		require.ErrorIs(t, err, ErrNoAgent)
		require.False(t, IsConnectionError(err), "nor is one waited for")
		c.link.had.Store(true)
		require.Equal(t, 3, looks(), "in 2.5 s")
		_, err = c.fairAgent()
		require.ErrorIs(t, err, ErrNoAgent)
		require.True(t, IsConnectionError(err))
		require.Empty(t, c.link.turn)
		c.stop()
		time.Sleep(time.Second)
		require.Zero(t, looks())
		require.Empty(t, c.link.turn)
		c.link = nil
		c.regainAgent()
	})
}

// A lock that comes when the client is closed is given up, and nothing is begun any more.
func TestClosedClientTakesNothing(t *testing.T) {
	c := newClient(Config{}, memory.Layout{Slots: 1, Size: 8}.WithDefaults(), &session{lost: make(chan struct{})})
	held := func() *Lock {
		c.busy++
		j := &job{c: c, m: &machine.Releaser{}}
		j.holders.Store(1)
		return &Lock{c: c, s: c.s, j: j}
	}
	h, _, err := c.hold(held(), Result{})
	require.NoError(t, err)
	require.Contains(t, c.held, h)
	c.closed, c.abandoned = true, true
	late := held()
	_, _, err = c.hold(late, Result{})
	require.ErrorIs(t, err, ErrClosed)
	require.NotContains(t, c.held, late)
	require.ErrorIs(t, late.Unlock(context.Background()), ErrLost)
	require.Equal(t, 1, c.busy, "its memory is idle again")
	_, _, err = c.Lock(context.Background(), 0, LockOptions{})
	require.ErrorIs(t, err, ErrClosed)
	c.freed = true
	_, err = c.start(nil, &machine.Releaser{}, 0)
	require.ErrorIs(t, err, ErrClosed)
}

// Close waits for busy jobs, and no longer.
func TestFreeWaitsForTheBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(Config{}, memory.Layout{}, nil)
		c.busy = 2
		over := make(chan error, 1)
		began := time.Now()
		go func() { over <- c.free() }()
		leave := func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.noLongerBusy()
		}
		time.Sleep(20 * time.Millisecond)
		leave()
		select {
		case <-over:
			t.Fatal("one is left")
		case <-time.After(20 * time.Millisecond):
		}
		leave()
		require.NoError(t, <-over)
		require.Less(t, time.Since(began), closeTimeout)
		c.busy, began = 1, time.Now()
		require.NoError(t, c.free())
		require.GreaterOrEqual(t, time.Since(began), closeTimeout, "who does not end is left to itself")
	})
}

// A client goes on at its own target only, and nothing is begun at another one.
func TestReconnectToAnotherTarget(t *testing.T) {
	in := aSessionInfo()
	c := newClient(Config{Session: in}, memory.Layout(in.Layout), nil)
	other := in
	other.Layout.Slots--
	require.ErrorIs(t, c.Reconnect(context.Background(), new(verbs.QP), new(verbs.CQ), other), ErrConfig)
	other = in
	other.Generation++
	err := c.Reconnect(context.Background(), new(verbs.QP), new(verbs.CQ), other)
	require.ErrorIs(t, err, ErrRestarted)
	require.False(t, IsConnectionError(fmt.Errorf("%w: %w", ErrBroken, err)))

	agreed := terms{ChainLimits{8, 1024}, in.target()}
	require.NoError(t, agreed.keep(agreed))
	require.ErrorIs(t, terms{agreed.limits, other.target()}.keep(agreed), ErrRestarted)
	require.ErrorIs(t, terms{ChainLimits{9, 1024}, in.target()}.keep(agreed), ErrConfig)
	got, err := decodeTerms(agreed.append(nil))
	require.NoError(t, err)
	require.Equal(t, agreed, got)
}

var errOnce = errors.New("once")
