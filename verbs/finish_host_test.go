//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// Functions of the program may end in these ways instead of returning.
func eachAbnormal(t *testing.T, f func(t *testing.T, end func())) {
	t.Run("panic", func(t *testing.T) { f(t, func() { panic("of the program") }) })
	t.Run("Goexit", func(t *testing.T) { f(t, runtime.Goexit) })
}

// abnormal requires that f does not return, because of a panic or Goexit in it.
func abnormal(t *testing.T, what string, f func()) {
	t.Helper()
	returned := false
	within(t, 10*time.Second, what, func() {
		defer func() { recover() }()
		f()
		returned = true
	})
	require.False(t, returned, "%s: the panic or Goexit goes on", what)
}

// endedFunc is an [CompletionHandler].
type endedFunc func(error) error

func (f endedFunc) Ended(err error) error { return f(err) }

var oneWrite = WriteWR(wordAt, wordSGE)

// closes requires that everything that one waits for in Close is released.
func closes(t *testing.T, c io.Closer) {
	t.Helper()
	within(t, 10*time.Second, "Close", func() { require.NoError(t, c.Close()) })
}

// An Ended that does not return is a failure of its own list. What completed with it
// is delivered, and the requester goes on to work and closes.
func TestEndedDoesNotReturn(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
		r, err := NewRequester(q, RequesterConfig{})
		require.NoError(t, err)
		first, second := Call{Then: endedFunc(func(error) error { end(); return nil })}, Call{}
		for _, c := range []*Call{&first, &second} {
			require.NoError(t, r.Go(t.Context(), c, oneWrite))
		}
		for _, id := range r.underWay() {
			standin.Complete(q.Num(), id, uint32(WCSuccess))
		}
		abnormal(t, "Poll", r.Poll)
		require.ErrorIs(t, first.Wait(t.Context()), errNoReturn)
		require.NoError(t, second.Wait(t.Context()), "it completed in the same poll")
		require.ErrorIs(t, q.Err(), errNoReturn)
		require.True(t, r.router.pollLock.Try(), "the poll lock is free")
		r.router.pollLock.Release()
		closes(t, r)
		require.NoError(t, q.Close())
	})
}

// The goroutine that polls waits for a request of its own, with memory that is the device's:
// the panic of another's function goes on once the device is done.
func TestWaitBesideEndedThatDoesNotReturn(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		for name, begin := range map[string]func(r *Requester){
			"Do":       func(r *Requester) { r.Do(context.Background(), oneWrite) },
			"Write":    func(r *Requester) { r.Write(context.Background(), wordAt, wordSGE) },
			"FetchAdd": func(r *Requester) { r.FetchAdd(context.Background(), wordAt, 1) },
			"Start":    func(r *Requester) { r.Start(context.Background(), oneWrite) },
		} {
			t.Run(name, func(t *testing.T) {
				_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
				r, err := NewRequester(q, RequesterConfig{Linger: -1})
				require.NoError(t, err)
				hostile := Call{Then: endedFunc(func(error) error { end(); return nil })}
				require.NoError(t, r.Go(t.Context(), &hostile, oneWrite))
				standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
				done := make(chan struct{})
				go func() {
					defer close(done)
					abnormal(t, name, func() { begin(r) })
				}()
				require.Eventually(t, hostile.Done, time.Minute, time.Millisecond)
				ids := r.underWay()
				require.Len(t, ids, 1, "the call still waits for its own")
				standin.Complete(q.Num(), ids[0], uint32(WCSuccess))
				<-done
				require.Len(t, r.free, len(r.slots))
				require.EqualValues(t, r.capacity, r.credits.Load())
				require.True(t, r.posting.Try(), "the lock to post is free")
				r.posting.Release()
				require.Zero(t, r.batch.Len())
				closes(t, r)
				closes(t, q)
			})
		}
	})
}

// What a call has left is told with its own result, whatever happens in the goroutine that
// waits for it.
func TestLeftBesideEndedThatDoesNotReturn(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	r, err := NewRequester(q, RequesterConfig{Linger: -1})
	require.NoError(t, err)
	e := leave(t, r, "Read", inFlight["Read"])
	own := r.underWay()
	hostile := Call{Then: endedFunc(func(error) error { runtime.Goexit(); return nil })}
	require.NoError(t, r.Go(t.Context(), &hostile, oneWrite))
	for _, id := range r.underWay() {
		if id != own[0] {
			standin.Complete(q.Num(), id, uint32(WCSuccess))
		}
	}
	require.Eventually(t, hostile.Done, time.Minute, time.Millisecond)
	standin.Complete(q.Num(), own[0], uint32(WCSuccess))
	within(t, 10*time.Second, "the READ", func() { <-e.Done() })
	require.NoError(t, e.Err())
	require.Len(t, r.free, len(r.slots))
	closes(t, r)
	closes(t, q)
}

// A queue pair that is reset, and one that is closed, tell all lists of it, whatever each
// does, and are reset and closed afterwards.
func TestAllAreToldOfTheEnd(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		for name, down := range map[string]func(r *Requester) error{
			"reset": func(r *Requester) error { return r.qp.ToReset() },
			"close": (*Requester).Close,
		} {
			t.Run(name, func(t *testing.T) {
				_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
				r, err := NewRequester(q, RequesterConfig{})
				require.NoError(t, err)
				told := 0
				calls := make([]Call, 4)
				for i := range calls {
					calls[i].Then = endedFunc(func(error) error { told++; end(); return nil })
					require.NoError(t, r.Go(t.Context(), &calls[i], oneWrite))
				}
				abnormal(t, name, func() { down(r) })
				require.Equal(t, len(calls), told)
				for i := range calls {
					require.True(t, calls[i].Done())
				}
				require.Equal(t, StateReset, q.State())
				closes(t, r)
				if name == "reset" {
					require.NoError(t, q.Err(), "it begins anew")
				}
				closes(t, q)
			})
		}
	})
}

// A message is there though Arrived did not return, and the receiver closes.
func TestArrivedDoesNotReturn(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
		standin.SetState(q.Num(), uint32(StateRTS))
		r, err := NewReceiver(q, ReceiverConfig{Size: 16, Depth: 3, Arrived: end})
		require.NoError(t, err)
		r.arrive(0, "one")
		r.arrive(1, "two")
		abnormal(t, "poll", func() {
			r.router.hold()
			r.router.pollOnceLocked()
		})
		require.EqualValues(t, 1, r.posted.Load())
		buf := make([]byte, 16)
		for _, want := range []string{"one", "two"} {
			m, err := r.Receive(t.Context(), buf)
			require.NoError(t, err)
			require.Equal(t, want, string(buf[:m.Len]))
		}
		r.flush()
		abnormal(t, "Close", func() { r.Close() })
		closes(t, r)
		closes(t, q)
	})
}

// endingEngine does not return from its methods.
type endingEngine struct {
	taker
	end func()
}

func (e *endingEngine) Completed(tag uint64, wc *WC) { e.taker.Completed(tag, wc); e.end() }
func (e *endingEngine) Lost(error)                   { e.end() }

// A goroutine that polls for an engine releases the poll lock, and all completions are delivered.
func TestCompletedDoesNotReturn(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		_, _, c, q := hostSide(t, CQConfig{PollOnly: true})
		e := &endingEngine{end: end}
		d, err := c.Dispatch(e, 4)
		require.NoError(t, err)
		other := &losing{}
		d2, err := c.Dispatch(other, 4)
		require.NoError(t, err)
		b, err := d.NewBatch(q, 4)
		require.NoError(t, err)
		come := func() {
			standin.Complete(q.Num(), d.ID(1), uint32(WCSuccess))
			standin.Complete(q.Num(), d.ID(2), uint32(WCSuccess))
			standin.Complete(q.Num(), d2.ID(3), uint32(WCSuccess))
		}
		for name, poll := range map[string]func(){
			"Poll": func() { d.Poll(0) },
			"Wait": func() { d.Wait(context.Background(), new(Waiter)) },
			"PostPoll": func() {
				b.Write(d.ID(9), 0, wordAt, wordSGE)
				_, found, err := d.PostPoll(b, 0)
				require.NoError(t, err)
				found.Dispatch()
			},
		} {
			e.tags, other.tags = nil, nil
			come()
			abnormal(t, name, poll)
			require.Equal(t, []uint64{1, 2}, e.taken(), name)
			require.Equal(t, []uint64{3}, other.taken(), name)
		}
		abnormal(t, "Lost", func() { d.rt.broken(errors.New("broken")) })
		require.Equal(t, 1, other.losses(), "all are told")
		come()
		abnormal(t, "Close", func() { d.Close() })
		closes(t, d)
		closes(t, d2)
		closes(t, q)
		closes(t, c)
	})
}
