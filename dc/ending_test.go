//go:build linux && cgo

package dc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// held is a back end with a device that never ends a request: the tests say what becomes
// of them. What is not defined here must not be called.
type held struct {
	backend
	ring    ring
	halting chan struct{} // halt and close end when it is closed
	waited  int           // enqueued
	aborted int
	refused int           // requests that the device does not take, the last of a call
	closing chan struct{} // close ends when it is closed; nil: with halting
}

func (h *held) place(p *Peer, n int) (place, error) {
	return place{p, &h.ring, h.ring.tail, min(n, len(h.ring.entries)-h.ring.len())}, nil
}

func (h *held) transmit(at place, _ int) (posted int, looked bool, found verbs.Polled, err error) {
	n := at.room
	if refused := min(h.refused, n); refused > 0 {
		h.ring.tail += uint32(n - refused)
		return n - refused, false, found, syscall.ENOMEM
	}
	h.ring.tail += uint32(n)
	return n, false, found, nil
}

func (h *held) enqueue(_ *Peer, n int)      { h.waited += n }
func (h *held) withdrawn(_ *Peer, n int)    { h.waited -= n }
func (h *held) peerStats(*Peer, *PeerStats) {}
func (h *held) busy() bool                  { return false }
func (h *held) perform()                    {}
func (h *held) abort(*Peer)                 { h.aborted++ }
func (h *held) stop()                       {}
func (h *held) halt()                       { <-h.halting }
func (h *held) close() error                { <-cmp.Or(h.closing, h.halting); return nil }

// giveBack gives the requests of a peer back, as after a reply that the target had
// no receive.
func (h *held) giveBack(i *Initiator, p *Peer) {
	i.mu.Lock()
	defer i.unlock()
	i.outside++ // without a poll
	defer func() { i.outside-- }()
	var es []entry
	for ; h.ring.head != h.ring.tail; h.ring.head++ {
		es = append(es, *h.ring.at(h.ring.head))
	}
	h.waited += len(es)
	i.returned(p, es)
}

func newHeld(t *testing.T, cfg InitiatorConfig) (*Initiator, *held, *Peer) {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{MaxCQE: 1 << 16})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	cfg.PD = pd
	cfg.defaults()
	i := newInitiator(cfg)
	h := &held{ring: newRing(4), halting: make(chan struct{})}
	i.be = h
	require.NoError(t, i.dispatch(4))
	i.begin()
	return i, h, &Peer{i: i}
}

// TestReturnedRequestsOverflowQueue: what comes back from the device, since the target
// had no receive, may be more than may wait. The next request is refused.
func TestReturnedRequestsOverflowQueue(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{MaxPending: 2})
	close(h.halting)
	n, err := i.Post(p, make([]Request, 6)...)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	h.giveBack(i, p)
	h.ring = newRing(1)
	h.ring.tail++ // no room
	require.NotPanics(t, func() { n, err = i.Post(p, Request{}) })
	require.ErrorIs(t, err, ErrQueueFull)
	require.Zero(t, n)
	require.NoError(t, i.Close())
}

// TestDoTakesBackWhatWasReturned: the context ends while the device has the request, which
// ends the call, and then the target turns out to have no receive for it.
func TestDoTakesBackWhatWasReturned(t *testing.T) {
	took, aborted := time.Hour, 1
	for try := 0; try < 5 && (took >= linger/2 || aborted > 0); try++ { // the machine may hold one up
		t.Run(fmt.Sprint(try), func(t *testing.T) { took, aborted = doTakesBack(t) })
	}
	require.Less(t, took, linger/2)
	require.Zero(t, aborted)
}

// doTakesBack returns how long the end of the request takes once it is given back, and how
// often what the device has was aborted.
func doTakesBack(t *testing.T) (took time.Duration, aborted int) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- i.Do(ctx, p, Request{}) }()
	require.Eventually(t, func() bool { return p.Stats().Posted == 1 }, time.Minute, time.Millisecond)
	cancel()
	var left *verbs.InFlightError
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorAs(t, err, &left)
		require.NoError(t, left.Err())
	case <-time.After(time.Minute):
		t.Fatal("Do waits for the device")
	}
	begin := time.Now()
	h.giveBack(i, p)
	select {
	case <-left.Done():
		require.ErrorIs(t, left.Err(), context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("a request that waits for its target is waited for")
	}
	took = time.Since(begin)
	require.Zero(t, h.waited)
	require.NoError(t, i.Close())
	return took, h.aborted
}

// TestDoWaitsForDevice: the caller of Do has its memory back when Do has
// returned, so not before the queue pairs are gone.
func TestDoWaitsForDevice(t *testing.T) {
	for name, end := range map[string]func(*Initiator) error{
		"closed": (*Initiator).Close,
		"lost": func(i *Initiator) error {
			(&engine{i}).Lost(errors.New("no queue"))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, h, p := newHeld(t, InitiatorConfig{})
			done, ended := make(chan error, 1), make(chan error, 2)
			go func() { done <- i.Do(context.Background(), p, Request{}) }()
			require.Eventually(t, func() bool { return p.Stats().Posted == 1 }, time.Minute, time.Millisecond)
			for range 2 {
				go func() { ended <- end(i) }()
			}
			select {
			case err := <-done:
				t.Fatalf("Do has returned, and the device has its request: %v", err)
			case <-ended:
				t.Fatal("the end is not waited for")
			case <-time.After(50 * time.Millisecond):
			}
			close(h.halting)
			require.Error(t, <-done)
			for range 2 {
				require.NoError(t, <-ended)
			}
			require.NoError(t, i.Close())
		})
	}
}

// TestRoomAfterFailure: when all that waited has failed there is room as well.
func TestRoomAfterFailure(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{MaxPending: 1})
	close(h.halting)
	h.ring = newRing(1)
	h.ring.tail++ // no room
	_, err := i.Post(p, make([]Request, 2)...)
	require.ErrorIs(t, err, ErrQueueFull)
	i.mu.Lock()
	i.failQueue(p, ErrUnreachable)
	i.unlock()
	require.Len(t, i.Events(), 1)
	require.Equal(t, Event{Kind: EventRoom, Peer: p}, <-i.Events())
	require.NoError(t, i.Close())
}

// TestForgottenPeerTimesNothing: a peer that was forgotten is not in the list of peers
// that have requests with timeouts.
func TestForgottenPeerTimesNothing(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	h.ring = newRing(1)
	h.ring.tail++ // no room
	_, err := i.Post(p, Request{ID: 1, Timeout: time.Hour})
	require.NoError(t, err)
	n, err := i.Cancel(p, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	i.mu.Lock()
	i.unlink(p)
	require.Empty(t, i.timed)
	i.mu.Unlock()
	require.NoError(t, i.Close())
}

// TestReturnedRequestsEndInTime: a request that comes back from the device waits no
// longer than its timeout says, though nothing had to be timed when it was posted.
func TestReturnedRequestsEndInTime(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	const timeout = 30 * time.Millisecond
	begin := time.Now()
	_, err := i.Post(p, Request{ID: 1, Timeout: timeout}, Request{ID: 2})
	require.NoError(t, err)
	require.Zero(t, h.waited)
	h.giveBack(i, p)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cs := make([]Completion, 2)
	n, err := i.Wait(ctx, cs)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.EqualValues(t, 1, cs[0].ID)
	require.ErrorIs(t, cs[0].Err, ErrTimeout)
	require.GreaterOrEqual(t, time.Since(begin), timeout)
	require.Equal(t, PeerStats{Posted: 2, Ended: 1, Failed: 1, Queued: 1}, p.Stats())
	require.NoError(t, i.Close())
}

// TestPartOfPost: of requests that the device does not take only those count that it
// took, so that Flush waits for nothing else, and the ones posted later follow them.
func TestPartOfPost(t *testing.T) {
	for _, refused := range []int{1, 3} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			i, h, p := newHeld(t, InitiatorConfig{})
			close(h.halting)
			h.refused = refused
			n, err := i.Post(p, make([]Request, 3)...)
			require.ErrorIs(t, err, syscall.ENOMEM)
			require.Equal(t, 3-refused, n)
			require.EqualValues(t, 3-refused, p.Stats().Posted)
			h.refused = 0
			_, err = i.Post(p, Request{ID: 7})
			require.NoError(t, err)
			require.EqualValues(t, 4-refused, h.ring.at(h.ring.tail-1).seq)
			flushed := flushing(t, i, p)
			i.mu.Lock()
			i.outside++
			for ; h.ring.head != h.ring.tail; h.ring.head++ {
				i.finish(h.ring.at(h.ring.head), nil)
			}
			i.outside--
			i.unlock()
			flushed()
			require.NoError(t, i.Flush(context.Background(), p), "all have ended")
			require.NoError(t, i.Close())
		})
	}
}

// TestEveryCloseWaits for the end, though the device has no requests any more: what the
// initiator is made of can be closed after each.
func TestEveryCloseWaits(t *testing.T) {
	i, h, _ := newHeld(t, InitiatorConfig{})
	close(h.halting)
	h.closing = make(chan struct{})
	(&engine{i}).Lost(errors.New("no queue"))
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- i.Close() }()
	}
	select {
	case <-ended:
		t.Error("it is not closed yet")
	case <-time.After(20 * time.Millisecond):
	}
	close(h.closing)
	for range 2 {
		require.NoError(t, <-ended)
	}
	_, more := <-i.Events()
	require.False(t, more, "whoever waits for events is told")
	i.mu.Lock()
	i.event(Event{})
	i.mu.Unlock()
}
