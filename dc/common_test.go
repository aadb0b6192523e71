//go:build linux && cgo

package dc_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// What is common to both back ends, on the stand-in for hardware: the tests say when
// requests end.

// TestCancel takes back what waits, and nothing else.
func TestCancel(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1})
	p := resolveDCT(t, i, 1, 0xa)
	post(t, i, p, 1, 2, 3, 2)
	n, err := i.Cancel(p, 1)
	require.NoError(t, err)
	require.Zero(t, n, "the device has it")
	n, err = i.Cancel(p, 2)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for _, c := range ended(t, i) {
		require.EqualValues(t, 2, c.ID)
		require.ErrorIs(t, c.Err, dc.ErrCanceled)
	}
	complete(0, 0, verbs.WCSuccess)
	require.EqualValues(t, 1, ended(t, i)[0].ID)
	complete(0, 1, verbs.WCSuccess)
	require.EqualValues(t, 3, ended(t, i)[0].ID)
	require.Equal(t, dc.PeerStats{Posted: 4, Ended: 4, Failed: 2, Attaches: 1}, p.Stats())
}

// TestTimeout ends what waits for too long, not what the device has.
func TestTimeout(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1})
	p := resolveDCT(t, i, 1, 0xa)
	for id := range uint64(3) {
		r := writeOf(id)
		if id < 2 {
			r.Timeout = 5 * time.Millisecond
		}
		_, err := i.Post(p, r)
		require.NoError(t, err)
	}
	var cs []dc.Completion
	require.Eventually(t, func() bool { cs = append(cs, ended(t, i)...); return len(cs) > 0 }, time.Minute, time.Millisecond)
	require.Len(t, cs, 1)
	require.EqualValues(t, 1, cs[0].ID)
	require.ErrorIs(t, cs[0].Err, dc.ErrTimeout)
	complete(0, 0, verbs.WCSuccess)
	require.NoError(t, ended(t, i)[0].Err)
	complete(0, 1, verbs.WCSuccess)
	require.EqualValues(t, 2, ended(t, i)[0].ID)
}

// TestRoomAgain is told once, when half of the queue is free.
func TestRoomAgain(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1, MaxPending: 4})
	p := resolveDCT(t, i, 1, 0xa)
	post(t, i, p, 0, 1, 2, 3, 4)
	_, err := i.Post(p, writeOf(5))
	require.ErrorIs(t, err, dc.ErrQueueFull)
	for place := range uint64(5) {
		require.Equal(t, place == 2, len(i.Events()) == 1, "%d", place)
		if place == 2 {
			require.Equal(t, dc.Event{Kind: dc.EventRoom, Peer: p}, <-i.Events())
		}
		complete(0, place, verbs.WCSuccess)
		require.Len(t, ended(t, i), 1)
	}
	require.Empty(t, i.Events())
}

// TestDoAndPost: a result goes to the call that waits for it, whichever goroutine polls.
func TestDoAndPost(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	complete(0, 0, verbs.WCSuccess)
	require.NoError(t, i.Do(context.Background(), p, writeOf(7)))
	complete(0, 1, verbs.WCRemoteAccess)
	require.ErrorIs(t, i.Do(context.Background(), p, writeOf(8)), verbs.WCRemoteAccess)
	require.Empty(t, ended(t, i))
}

// TestDoTakesBack what still waits when its context ends.
func TestDoTakesBack(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1})
	p := resolveDCT(t, i, 1, 0xa)
	post(t, i, p, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, i.Do(ctx, p, writeOf(2)), context.DeadlineExceeded)
	require.EqualValues(t, 1, p.Stats().Posted-p.Stats().Ended)
}

// TestContextsThatHaveEnded: calls with them do nothing, and say so, also where there is
// something to take.
func TestContextsThatHaveEnded(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	late, stop := context.WithTimeout(context.Background(), -time.Second)
	defer stop()
	require.ErrorIs(t, i.Do(late, p, writeOf(1)), context.DeadlineExceeded)
	require.ErrorIs(t, i.Do(ctx, p, writeOf(1)), context.Canceled)
	require.ErrorIs(t, i.Attach(ctx, p), context.Canceled)
	require.ErrorIs(t, i.Flush(ctx, p), context.Canceled)
	recorded(t, "")
	require.Zero(t, p.Stats())
	post(t, i, p, 2)
	complete(0, 0, verbs.WCSuccess)
	require.NoError(t, i.Flush(context.Background(), p))
	n, err := i.Wait(ctx, make([]dc.Completion, 1))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	n, err = i.Wait(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	require.Len(t, ended(t, i), 1, "it was not taken")

	target, err := dc.NewTarget(dc.TargetConfig{PD: i.PD(), GID: standinGID, Receives: 8})
	require.NoError(t, err)
	defer func() { require.NoError(t, target.Close()) }()
	recv, err := target.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(7, verbs.SGE{Addr: 0x6000, Length: 64, LKey: 3})
	_, err = recv.Post()
	require.NoError(t, err)
	standin.Receive(firstQP+1, 7, 5, nil)
	rs := make([]dc.Received, 1)
	_, err = target.Wait(ctx, rs)
	require.ErrorIs(t, err, context.Canceled)
	n, err = target.Wait(context.Background(), rs)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestLogHandlerCallsBack while the initiator has a lock, and ends its goroutine: neither
// holds up anything.
func TestLogHandlerCallsBack(t *testing.T) {
	var i *dc.Initiator
	heard := make(chan struct{}, 1)
	log := slog.New(handlerFunc(func(slog.Record) {
		i.Stats()
		heard <- struct{}{}
		runtime.Goexit()
	}))
	i = standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Streams: -1, Logger: log})
	p := resolveDCT(t, i, 1, 0xa)
	post(t, i, p, 1, 2)
	standin.Refuse("modify", syscall.EIO)
	complete(0, 0, verbs.WCRemoteAccess)
	done := make(chan int)
	go func() {
		n, _ := i.Poll(make([]dc.Completion, 1))
		done <- n
	}()
	for range 2 {
		select {
		case n := <-done:
			require.Equal(t, 1, n)
		case <-heard:
		case <-time.After(testTimeout):
			t.Fatal("the initiator hangs")
		}
	}
	complete(0, 1, verbs.WCFlushed)
	require.Len(t, ended(t, i), 1)
}

// handlerFunc handles all log records.
type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

// TestFlush: quiet requests, and those with a completion that was not taken.
func TestFlush(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	require.NoError(t, i.Flush(context.Background(), p), "nothing was posted")
	quiet := writeOf(1)
	quiet.Quiet = true
	_, err := i.Post(p, quiet, quiet)
	require.NoError(t, err)
	complete(0, 0, verbs.WCSuccess)
	complete(0, 1, verbs.WCSuccess)
	require.NoError(t, i.Flush(context.Background(), p))
	require.Empty(t, ended(t, i))
	post(t, i, p, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, i.Flush(ctx, p), context.DeadlineExceeded)
}

// TestForeignPeers are refused by all calls.
func TestForeignPeers(t *testing.T) {
	pd := standinPD(t)
	make := func() *dc.Initiator {
		i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: standinGID, Contexts: 1})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, i.Close()) })
		return i
	}
	a, b := make(), make()
	p := resolveDCT(t, a, 1, 0xa)
	resolveDCT(t, b, 2, 0xb)
	_, err := b.Post(p, writeOf(1))
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.ErrorIs(t, b.Do(context.Background(), p, writeOf(1)), verbs.ErrAttributes)
	require.ErrorIs(t, b.Attach(context.Background(), p), verbs.ErrAttributes)
	require.ErrorIs(t, b.Detach(p), verbs.ErrAttributes)
	require.ErrorIs(t, b.Forget(p), verbs.ErrAttributes)
	require.ErrorIs(t, b.Flush(context.Background(), p), verbs.ErrAttributes)
	_, err = b.Cancel(p, 1)
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// TestNoPeer: a nil one is refused by all calls, and the initiator goes on.
func TestNoPeer(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	ctx := context.Background()
	for name, call := range map[string]func(p *dc.Peer) error{
		"Attach": func(p *dc.Peer) error { return i.Attach(ctx, p) },
		"Cancel": func(p *dc.Peer) error { _, err := i.Cancel(p, 1); return err },
		"Detach": func(p *dc.Peer) error { return i.Detach(p) },
		"Do":     func(p *dc.Peer) error { return i.Do(ctx, p, writeOf(1)) },
		"Flush":  func(p *dc.Peer) error { return i.Flush(ctx, p) },
		"Forget": func(p *dc.Peer) error { return i.Forget(p) },
		"Post":   func(p *dc.Peer) error { _, err := i.Post(p, writeOf(1)); return err },
		"PostPoll": func(p *dc.Peer) error {
			_, _, err := i.PostPoll(p, make([]dc.Completion, 1), 0, writeOf(1))
			return err
		},
	} {
		for _, p := range []*dc.Peer{nil, {}} {
			var err error
			require.NotPanics(t, func() { err = call(p) }, name)
			require.ErrorIs(t, err, verbs.ErrAttributes, name)
		}
	}
	post(t, i, resolveDCT(t, i, 1, 0xa), 1)
}

// TestForgottenPeers are refused by all calls.
func TestForgottenPeers(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	post(t, i, p, 1)
	complete(0, 0, verbs.WCSuccess)
	require.Len(t, ended(t, i), 1)
	require.NoError(t, i.Forget(p))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, call := range map[string]func() error{
		"Attach":   func() error { return i.Attach(ctx, p) },
		"Cancel":   func() error { _, err := i.Cancel(p, 1); return err },
		"Detach":   func() error { return i.Detach(p) },
		"Do":       func() error { return i.Do(ctx, p, writeOf(1)) },
		"Flush":    func() error { return i.Flush(ctx, p) },
		"Forget":   func() error { return i.Forget(p) },
		"Post":     func() error { _, err := i.Post(p, writeOf(1)); return err },
		"PostPoll": func() error { _, _, err := i.PostPoll(p, make([]dc.Completion, 1), 0, writeOf(1)); return err },
	} {
		require.ErrorIs(t, call(), dc.ErrClosed, name)
	}
	require.Zero(t, p.Stats())
	again := resolveDCT(t, i, 1, 0xa)
	require.NotSame(t, p, again)
	post(t, i, again, 2)
	require.Zero(t, p.Stats(), "they are not the other one's, which has its number")
}

// TestCloseEndsWaits of all kinds.
func TestCloseEndsWaits(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	var all sync.WaitGroup
	wait := func(f func() error) {
		all.Go(func() {
			if err := f(); err == nil {
				t.Error("a wait for nothing has ended well")
			}
		})
	}
	for range 3 {
		wait(func() error { return i.Do(context.Background(), p, writeOf(1)) })
		wait(func() error { _, err := i.Wait(context.Background(), make([]dc.Completion, 1)); return err })
	}
	require.Eventually(t, func() bool { return p.Stats().Posted == 3 }, time.Minute, time.Millisecond)
	wait(func() error { return i.Flush(context.Background(), p) })
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, i.Close())
	all.Wait()
	require.ErrorIs(t, i.Do(context.Background(), p, writeOf(1)), dc.ErrClosed)
}

// TestDoDoesNotAllocate once everything has been used.
func TestDoDoesNotAllocate(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolveDCT(t, i, 1, 0xa)
	place := uint64(0)
	turn := func() {
		complete(0, place, verbs.WCSuccess)
		place++
		if err := i.Do(context.Background(), p, writeOf(1)); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(200, turn))
}
