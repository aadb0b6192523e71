//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// losing is a taker that counts how often its queue was lost, and wakes a waiter with
// each completion.
type losing struct {
	taker
	lost []error
	w    Waiter
}

func (e *losing) Completed(tag uint64, wc *WC) {
	e.taker.Completed(tag, wc)
	e.w.Wake()
}

func (e *losing) Lost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = append(e.lost, err)
}

func (e *losing) losses() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.lost)
}

// hostEngine is an engine on a queue of the stand-in.
func hostEngine(t *testing.T, cc CQConfig) (*losing, *Dispatcher, *CQ, *QP, *Batch) {
	t.Helper()
	_, _, c, q := hostSide(t, cc)
	e := &losing{}
	d, err := c.Dispatch(e, 4)
	require.NoError(t, err)
	b, err := d.NewBatch(q, 4)
	require.NoError(t, err)
	return e, d, c, q, b
}

// Each engine gets what carries its tags, all 48 bits of them, and a failure is the
// end of its queue pair.
func TestEnginesGetTheirTags(t *testing.T) {
	first, d1, c, q, _ := hostEngine(t, CQConfig{PollOnly: true})
	second := &losing{}
	d2, err := c.Dispatch(second, 4)
	require.NoError(t, err)
	standin.Complete(q.Num(), d2.ID(MaxTag), uint32(WCSuccess))
	standin.Complete(q.Num(), d1.ID(7), uint32(WCSuccess))
	standin.Complete(q.Num(), d2.ID(1<<49|9), uint32(WCSuccess))
	n, err := d1.Poll(0)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []uint64{7}, first.taken())
	require.Equal(t, []uint64{MaxTag, 9}, second.taken())
	require.NoError(t, q.Err())
	standin.Complete(q.Num(), d1.ID(8), uint32(WCRemoteAccess))
	_, err = d2.Poll(0)
	require.NoError(t, err)
	require.ErrorIs(t, q.Err(), WCRemoteAccess)
	require.Equal(t, []uint64{7, 8}, first.taken())
	standin.Complete(q.Num(), d1.ID(10), uint32(WCSuccess))
	require.NoError(t, d1.Close())
	require.Equal(t, []uint64{7, 8, 10}, first.taken(), "what is in the queue comes until Close returns")
	standin.Complete(q.Num(), d1.ID(11), uint32(WCSuccess))
	_, err = d2.Poll(0)
	require.NoError(t, err)
	require.Len(t, first.taken(), 3)
	require.EqualValues(t, 1, d2.rt.stray.Load())
	_, err = d1.Poll(0)
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, d2.Close())
}

// Requests that were under way before a queue was dispatched are not taken for an engine's,
// whatever small numbers a program gave them.
func TestEnginesGetNothingElse(t *testing.T) {
	e, d, _, q, _ := hostEngine(t, CQConfig{PollOnly: true})
	for _, id := range []uint64{0, 7, MaxTag} {
		standin.Complete(q.Num(), id, uint32(WCSuccess))
	}
	n, err := d.Poll(0)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Empty(t, e.taken())
	require.EqualValues(t, 3, d.rt.stray.Load())
	require.NoError(t, d.Close())
}

// PostPoll hands out nothing before Deliver, and while another goroutine polls it only
// posts. Afterwards others can poll.
func TestPostPollInTwoSteps(t *testing.T) {
	e, d, c, q, b := hostEngine(t, CQConfig{PollOnly: true})
	standin.Complete(q.Num(), d.ID(1), uint32(WCSuccess))
	b.Write(d.ID(2), 0, wordAt, wordSGE)
	posted, found, err := d.PostPoll(b, 0)
	require.NoError(t, err)
	require.Equal(t, 1, posted)
	require.Empty(t, e.taken())
	require.False(t, d.rt.pollLock.Try(), "nobody polls before Deliver")
	b.Write(d.ID(3), 0, wordAt, wordSGE)
	posted, second, err := d.PostPoll(b, 0)
	require.NoError(t, err)
	require.Equal(t, 1, posted)
	require.Zero(t, second.Dispatch())
	require.Equal(t, 1, found.Dispatch())
	require.Equal(t, []uint64{1}, e.taken())
	require.True(t, d.rt.pollLock.Try())
	n, err := d.Poll(0)
	require.NoError(t, err)
	require.Zero(t, n, "somebody else polls")
	d.rt.pollLock.Release()

	c.overrun.Store(true)
	b.Write(d.ID(4), 0, wordAt, wordSGE)
	posted, found, err = d.PostPoll(b, 0)
	require.ErrorIs(t, err, ErrOverrun)
	require.Equal(t, 1, posted)
	require.Zero(t, e.losses())
	found.Dispatch()
	require.Equal(t, 1, e.losses())
	_, err = d.Poll(0)
	require.ErrorIs(t, err, ErrOverrun)
	require.Equal(t, 2, e.losses())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e.w.Reset()
	require.ErrorIs(t, d.Wait(ctx, &e.w), ErrOverrun)
	require.Equal(t, 3, e.losses())
	require.NoError(t, d.Close())
	d.takeDown(errors.New("later"))
	require.Equal(t, 3, e.losses(), "it is told nothing after Close")
	b.Write(d.ID(5), 0, wordAt, wordSGE)
	posted, found, err = d.PostPoll(b, 0)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, posted)
	require.Zero(t, found.Dispatch())
	require.Zero(t, b.Len())
}

// dispatchOwn takes completions that are the dispatcher's own and of requests that succeeded, all or
// none, and then others can poll.
func TestDispatchOwn(t *testing.T) {
	e, d, _, q, b := hostEngine(t, CQConfig{PollOnly: true})
	var got []uint64
	completed := func(tag uint64, _ *WC) {
		require.False(t, d.rt.pollLock.Try(), "another polls in the middle")
		got = append(got, tag)
	}
	post := func() Polled {
		b.Write(d.ID(9), 0, wordAt, wordSGE)
		_, found, err := d.PostPoll(b, 0)
		require.NoError(t, err)
		return found
	}
	none := post()
	require.False(t, none.dispatchOwn(d, completed), "there is nothing")
	require.Zero(t, none.Dispatch())
	for _, other := range []struct {
		id     uint64
		status WCStatus
	}{{d.ID(2) + 1<<48, WCSuccess}, {d.ID(2), WCFlushed}} {
		standin.Complete(q.Num(), d.ID(1), uint32(WCSuccess))
		standin.Complete(q.Num(), other.id, uint32(other.status))
		found := post()
		require.False(t, found.dispatchOwn(d, completed))
		require.Empty(t, got)
		require.Equal(t, 2, found.Dispatch())
	}
	require.Equal(t, []uint64{1, 1, 2}, e.taken())
	for tag := range uint64(2) {
		standin.Complete(q.Num(), d.ID(tag), uint32(WCSuccess))
	}
	require.True(t, post().dispatchOwn(d, completed))
	require.Equal(t, []uint64{0, 1}, got)
	require.Equal(t, []uint64{1, 1, 2}, e.taken(), "of them the handler is not told")
	require.True(t, d.rt.pollLock.Try())
	d.rt.pollLock.Release()
	require.False(t, Polled{}.dispatchOwn(d, completed))
	require.NoError(t, d.Close())
}

// A wait ends whether its waiter is parked with the poll lock, listens, has not
// begun or is about to.
func TestWaitersWake(t *testing.T) {
	e, d, _, _, _ := hostEngine(t, CQConfig{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e.w.Wake()
	require.NoError(t, d.Wait(ended, &e.w), "woken before")
	e.w.Reset()
	require.False(t, e.w.Woken())
	require.ErrorIs(t, d.Wait(ended, &e.w), context.Canceled)
	require.ErrorIs(t, d.Wait(ended, nil), ErrAttributes)
	d.Wake(nil)

	var other Waiter
	var wg sync.WaitGroup
	for range 30 {
		other.Reset()
		e.w.Reset()
		wg.Go(func() { require.NoError(t, d.Wait(context.Background(), &e.w)) })
		wg.Go(func() { require.NoError(t, d.Wait(t.Context(), &other)) })
		time.Sleep(time.Millisecond)
		d.Wake(&e.w)
		d.Wake(&other)
		within(t, 5*time.Second, "Wait", wg.Wait)
	}
	require.True(t, d.rt.pollLock.Try(), "the poll lock was not lost")
	d.rt.pollLock.Release()

	e.w.Reset()
	listening, stop := context.WithCancel(t.Context())
	require.True(t, d.rt.pollLock.Try())
	wg.Go(func() { require.ErrorIs(t, d.Wait(listening, &e.w), context.Canceled) })
	for e.w.count.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	within(t, 5*time.Second, "Wait of one who listens", wg.Wait)

	for _, wake := range []func(){
		func() { d.Wake(&e.w) },                                   // while another goroutine polls on
		func() { e.w.woken.Store(true); d.rt.pollLock.Release() }, // about to be woken, and has the poll lock first
	} {
		e.w.Reset()
		wg.Go(func() { require.NoError(t, d.Wait(t.Context(), &e.w)) })
		for e.w.count.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
		wake()
		within(t, 5*time.Second, "Wait of one who listens", wg.Wait)
	}
	require.True(t, d.rt.pollLock.Try(), "the poll lock was kept")
	d.rt.pollLock.Release()
	require.NoError(t, d.Close())
	e.w.Reset()
	require.ErrorIs(t, d.Wait(t.Context(), &e.w), ErrClosed)
}

// Of several listeners each is woken though there is one token, and no token is left
// behind by a wake without a listener.
func TestListeners(t *testing.T) {
	rt := bareRouter(1, 1)
	e := &ending{}
	e.token = make(chan struct{}, 1)
	e.wake()
	require.Empty(t, e.token, "nobody listens")
	require.False(t, e.listen(t.Context(), rt), "it is over")
	require.True(t, rt.pollLock.Try(), "a waiter that need not wait does not take the poll lock")
	e.flying.Store(true)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for e.flying.Load() {
				require.False(t, e.listen(context.Background(), rt))
			}
		})
	}
	for e.count.Load() < 5 {
		time.Sleep(time.Millisecond)
	}
	e.end()
	within(t, 5*time.Second, "listeners", wg.Wait)
	rt.pollLock.Release()
	e.flying.Store(true)
	for len(e.token) > 0 {
		<-e.token
	}
	require.True(t, e.listen(t.Context(), rt), "the poll lock is free")
	e.flying.Store(false)
	require.NoError(t, e.look(t.Context(), rt))
	require.True(t, rt.pollLock.Try(), "the poll lock was given away")
}
