package verbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// told counts how often a call is told of its end, and returns its error.
type told struct {
	t     *testing.T
	c     *Call
	times int
	err   error
	say   func(error) error
}

func (o *told) Ended(err error) error {
	if o.c.Done() {
		o.t.Error("those who wait heard of the end first")
	}
	o.times++
	o.err = err
	return o.say(err)
}

// flyCall is what Go does.
func (r *Requester) flyCall(i int, c *Call) (id uint64) {
	id = r.fly(i, 1)
	r.slots[i].call, c.r = c, r
	c.flying.Store(true)
	return id
}

// Random completions: each call is told once, its error is what Wait returns, and
// its slot is free again.
func TestCallsAreTold(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 200 {
		const slots = 5
		rt := bareRouter(1, slots)
		r := requestersOf(rt)[0]
		other := errors.New("other")
		says := []func(error) error{
			func(err error) error { return err },
			func(err error) error { return errors.Join(err, other) },
		}
		for _, i := range rng.Perm(slots) {
			c := &Call{}
			o := &told{t: t, c: c, say: says[rng.IntN(2)]}
			c.Then = o
			id, status := r.flyCall(i, c), WCSuccess
			if rng.IntN(3) == 0 {
				status = WCRemoteAccess
			}
			require.False(t, c.Done())
			rt.deliver([]WC{completion(id&^1, WCSuccess)})
			require.Zero(t, o.times)
			rt.deliver([]WC{completion(id, status), completion(id, status)})
			require.True(t, c.Done())
			require.Equal(t, 1, o.times)
			require.EqualValues(t, slots, r.credits.Load())
			require.Equal(t, []uint32{uint32(i)}, r.free)
			require.Nil(t, r.slots[i].call)
			r.free = r.free[:0]
			if status == WCSuccess {
				require.NoError(t, o.err)
			} else {
				require.ErrorIs(t, o.err, status)
			}
			err := c.Wait(t.Context())
			require.Equal(t, err, c.Wait(t.Context()))
			require.Equal(t, o.say(o.err), err)
			if err != nil {
				require.Error(t, r.qp.Err(), "also by what Ended returned")
				break // the next one would have its cause
			}
			require.NoError(t, r.qp.Err())
		}
	}
}

// What was flushed before its cause is known is told of when it is.
func TestFlushedCallIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which has no time of its own: the cause is waited for for a moment alone
		rt := bareRouter(1, 2)
		r := requestersOf(rt)[0]
		cause := errors.New("cause")
		c, done := &Call{}, make(chan error, 1)
		c.Then = &told{t: t, c: c, say: func(err error) error { done <- err; return err }}
		rt.deliver([]WC{completion(r.flyCall(1, c), WCFlushed)})
		require.False(t, c.Done())
		r.qp.terminate(cause)
		err := <-done
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, WCFlushed)
		require.ErrorIs(t, c.Wait(t.Context()), cause)
	})
}

// Any number wait for one call while another polls, some give up, and all others
// hear of the end.
func TestAllWhoWaitForACallWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bareRouter(1, 2)
		r := requestersOf(rt)[0]
		var c Call // used again and again
		for range 50 {
			require.True(t, rt.pollLock.Try()) // a goroutine polls all the time
			id := r.flyCall(0, &c)
			hasty, cancel := context.WithCancel(context.Background())
			ends := make(chan error, 8)
			for i := range cap(ends) {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = hasty
				}
				go func() { ends <- c.Wait(ctx) }()
			}
			synctest.Wait()
			cancel()
			synctest.Wait()
			require.Len(t, ends, cap(ends)/2)
			rt.deliver([]WC{completion(id, WCSuccess)})
			synctest.Wait()
			require.Len(t, ends, cap(ends))
			for i := range cap(ends) {
				err := <-ends
				if i < cap(ends)/2 {
					require.Equal(t, context.Canceled, err)
				} else {
					require.NoError(t, err)
				}
			}
			rt.pollLock.Release()
		}
	})
}

func TestCallNotStarted(t *testing.T) {
	var c Call
	require.True(t, c.Done())
	require.ErrorIs(t, c.Wait(t.Context()), ErrState)
}
