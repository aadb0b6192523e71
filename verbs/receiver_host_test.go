//go:build linux && cgo

package verbs

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// hostReceiver is a receiver on a queue pair of the stand-in.
func hostReceiver(t *testing.T, depth int) (*Receiver, *QP) {
	t.Helper()
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	standin.SetState(q.Num(), uint32(StateRTS))
	r, err := NewReceiver(q, ReceiverConfig{Size: 16, Depth: depth})
	require.NoError(t, err)
	return r, q
}

// id is the number of the receive that a slot has posted.
func (r *Receiver) id(i int) uint64 {
	return r.index<<48 | uint64(i)<<24 | uint64(r.slots[i].gen&genMask)<<1 | 1
}

// flush is what the device does with a queue pair that Close takes down.
func (r *Receiver) flush() {
	for i := range r.slots {
		if r.slots[i].flying.Load() {
			standin.Complete(r.qp.Num(), r.id(i), uint32(WCFlushed))
		}
	}
}

func (r *Receiver) arrive(i int, text string) {
	copy(r.mr.Bytes()[i*r.each:], text)
	standin.Receive(r.qp.Num(), r.id(i), len(text), nil)
}

// Messages come in the order of the queue, each once, and their slots receive again:
// under another number, so that what comes twice is dropped.
func TestReceiverHandsOutInOrder(t *testing.T) {
	r, q := hostReceiver(t, 3)
	ctx, buf := t.Context(), make([]byte, 16)
	for round := range 20 {
		old := r.id(1)
		for i := range 3 {
			r.arrive((round+i)%3, fmt.Sprint("message ", round, i))
		}
		for i := range 3 {
			m, err := r.Receive(ctx, buf)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("message ", round, i), string(buf[:m.Len]))
			require.EqualValues(t, 3-2+i, r.posted.Load(), "taken slots receive again")
		}
		strays := r.router.stray.Load()
		standin.Receive(q.Num(), old, 5, nil)
		r.router.hold()
		require.NoError(t, r.router.pollOnceLocked())
		require.Equal(t, strays+1, r.router.stray.Load())
	}
	imm := uint32(77)
	standin.Receive(q.Num(), r.id(2), 4, &imm)
	m, err := r.Receive(ctx, buf)
	require.NoError(t, err)
	require.True(t, m.HasImm)
	require.Equal(t, imm, m.Imm)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.Receive(ended, buf[:15])
	require.ErrorIs(t, err, ErrAttributes, "the longest message would not fit")
	r.flush()
	require.NoError(t, r.Close())
	_, err = r.Receive(ctx, buf)
	require.ErrorIs(t, err, ErrClosed)
}

// Arrived is called for what arrived without a wait, and no message is no error; the end
// is one, behind what had arrived.
func TestReceiverWithoutWaiting(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	standin.SetState(q.Num(), uint32(StateRTS))
	arrived := 0
	r, err := NewReceiver(q, ReceiverConfig{Size: 16, Depth: 3, Arrived: func() { arrived++ }})
	require.NoError(t, err)
	buf := make([]byte, 16)
	none := func() {
		t.Helper()
		_, ok, err := r.TryReceive(buf)
		require.NoError(t, err)
		require.False(t, ok)
	}
	none()
	r.arrive(0, "one")
	r.arrive(1, "two")
	none()
	require.Zero(t, arrived, "nobody has polled")
	_, err = r.router.pollOnce()
	require.NoError(t, err)
	require.Equal(t, 2, arrived)
	for _, want := range []string{"one", "two"} {
		m, ok, err := r.TryReceive(buf)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, string(buf[:m.Len]))
	}
	none()
	_, _, err = r.TryReceive(buf[:15])
	require.ErrorIs(t, err, ErrAttributes, "the longest message would not fit")
	r.arrive(2, "three")
	q.terminate(fmt.Errorf("the cause"))
	m, ok, err := r.TryReceive(buf)
	require.NoError(t, err)
	require.True(t, ok, "it came before the end")
	require.Equal(t, "three", string(buf[:m.Len]))
	_, ok, err = r.TryReceive(buf)
	require.ErrorContains(t, err, "the cause")
	require.False(t, ok)
	r.flush()
	require.NoError(t, r.Close())
	_, _, err = r.TryReceive(buf)
	require.ErrorIs(t, err, ErrClosed)
}

// Arrived is called at the end, too, when receives come back without a message and
// nothing else says so: a peer may have the device end the queue pair by a request that it refuses.
func TestReceiverWithoutWaitingIsFlushed(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	standin.SetState(q.Num(), uint32(StateRTS))
	arrived := 0
	r, err := NewReceiver(q, ReceiverConfig{Size: 16, Depth: 3, Arrived: func() { arrived++ }})
	require.NoError(t, err)
	r.flush()
	_, err = r.router.pollOnce()
	require.NoError(t, err)
	require.Positive(t, arrived)
	_, ok, err := r.TryReceive(make([]byte, 16))
	require.ErrorIs(t, err, WCFlushed)
	require.False(t, ok)
	require.NoError(t, r.Close())
}

// A slot is its taker's until the message was copied.
func TestReceiverCopiesBeforeItPostsAgain(t *testing.T) {
	r, _ := hostReceiver(t, 1)
	r.arrive(0, "one")
	r.router.pollOnce()
	i, ok := r.take()
	require.True(t, ok)
	r.posting.Lock() // a call that would post the slot waits
	buf := make([]byte, 16)
	done := make(chan Message)
	go func() { done <- r.message(i, buf) }()
	Parked(t, "sync.Mutex.Lock", "verbs.(*Receiver).message")
	copy(r.mr.Bytes(), "two") // a device that was given the slot too early
	require.Zero(t, r.posted.Load())
	r.posting.Unlock()
	m := <-done
	require.Equal(t, "one", string(buf[:m.Len]))
	r.flush()
	require.NoError(t, r.Close())
}

// What had arrived before the queue pair ended is handed out before the error, also
// what had not been polled.
func TestReceiverHandsOutBeforeTheEnd(t *testing.T) {
	r, q := hostReceiver(t, 4)
	ctx, buf := t.Context(), make([]byte, 16)
	r.arrive(0, "one")
	r.arrive(1, "two")
	standin.Complete(q.Num(), r.id(2), uint32(WCFlushed))
	cause := fmt.Errorf("the cause")
	q.terminate(cause)
	for _, want := range []string{"one", "two"} {
		m, err := r.Receive(ctx, buf)
		require.NoError(t, err)
		require.Equal(t, want, string(buf[:m.Len]))
	}
	_, err := r.Receive(ctx, buf)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, WCFlushed)
	require.True(t, r.flushed.Load())
	r.flush()
	require.NoError(t, r.Close())
	require.Zero(t, r.posted.Load())
	require.False(t, r.cutOff)
}

// A queue pair that is reset forgets its receives: waits end with an error, and nothing
// is posted any more, whatever becomes of the queue pair.
func TestReceiverOfAResetQueuePair(t *testing.T) {
	r, q := hostReceiver(t, 2)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := r.Receive(context.Background(), make([]byte, 16))
			require.ErrorIs(t, err, errRevived)
		})
	}
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, q.ToReset())
	within(t, 5*time.Second, "Receive", wg.Wait)
	require.Zero(t, r.posted.Load())
	require.NoError(t, r.post(0))
	require.Zero(t, r.posted.Load())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
}

// Each waiting goroutine gets a message, although one token wakes them.
func TestReceiversAllWake(t *testing.T) {
	r, _ := hostReceiver(t, 4)
	got := make(chan string, 4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, 16)
			m, err := r.Receive(t.Context(), buf)
			require.NoError(t, err)
			got <- string(buf[:m.Len])
		})
	}
	time.Sleep(10 * time.Millisecond)
	for i := range 4 {
		r.posting.Lock()
		r.arrive(i, fmt.Sprint(i))
		r.posting.Unlock()
	}
	within(t, 5*time.Second, "Receive", wg.Wait)
	close(got)
	seen := map[string]bool{}
	for s := range got {
		seen[s] = true
	}
	require.Len(t, seen, 4)
	r.flush()
	require.NoError(t, r.Close())
}
