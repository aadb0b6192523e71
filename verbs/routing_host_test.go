//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// hostSide is a queue pair of the stand-in that can send, in a queue of its own.
func hostSide(t *testing.T, cc CQConfig) (*Device, *PD, *CQ, *QP) {
	t.Helper()
	d, p, _, _ := driverRig(t)
	c, err := d.CreateCQ(cc)
	require.NoError(t, err)
	return d, p, c, hostQP(t, p, c, 8)
}

func hostQP(t *testing.T, p *PD, c *CQ, depth int) *QP {
	t.Helper()
	q, err := p.CreateQP(QPConfig{Extended: true, SendCQ: c, GID: standinGID, MaxSendWR: depth})
	require.NoError(t, err)
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	return q
}

// underWay are the numbers of the last requests of what a requester has posted.
func (r *Requester) underWay() (ids []uint64) {
	for i := range r.slots {
		if s := &r.slots[i]; s.flying.Load() {
			ids = append(ids, r.index<<48|uint64(i)<<24|uint64(s.gen&genMask)<<1|1)
		}
	}
	return ids
}

// taker is an engine that keeps the tags of its completions.
type taker struct {
	mu   sync.Mutex
	tags []uint64
}

func (e *taker) Completed(tag uint64, _ *WC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tags = append(e.tags, tag)
}

func (e *taker) Lost(error) {}

func (e *taker) taken() []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]uint64(nil), e.tags...)
}

// A queue pair ended, and a goroutine still looks after what was under way when the last
// requester of the queue closes: the completions that come then are the program's.
func TestQueueIsTheProgramsAfterClose(t *testing.T) {
	_, _, c, q := hostSide(t, CQConfig{PollOnly: true})
	r, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	life := q.terminate(errors.New("died"))
	asked := 0
	err = r.router.reclaim(q, life, func() bool {
		if asked++; asked == 1 {
			require.NoError(t, r.Close())
			standin.Complete(q.Num(), 7, uint32(WCFlushed))
		}
		return asked == 1
	})
	require.NoError(t, err)
	var wcs [4]WC
	n, err := c.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "the completion was taken from the program")
	require.EqualValues(t, 7, wcs[0].ID())
}

// A queue pair that is reset only to have its memory back stays ended all the time:
// concurrent calls return why it ended, not that it was reset.
func TestReclaimedQueuePairStaysEnded(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	ended := make(chan error, 8)
	q.onEnd(func(cause error) { ended <- cause })
	done := q.Done()
	cause := errors.New("died")
	life := q.terminate(cause)
	require.NoError(t, q.stateIn(life, StateReset))
	require.Equal(t, StateReset, q.State())
	require.Equal(t, cause, q.Err())
	require.Equal(t, done, q.Done(), "a new life has begun")
	require.Equal(t, cause, <-ended)
	require.ErrorIs(t, q.stateIn(life, StateReset), errRevived, "the receives of its next life are not taken")
	require.NoError(t, q.ToReset(), "by the program")
	require.NoError(t, q.Err())
	require.Empty(t, ended, "told twice")
}

// A dispatcher closes while another goroutine polls it.
func TestDispatcherPolledWhileItCloses(t *testing.T) {
	_, _, c, q := hostSide(t, CQConfig{PollOnly: true})
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for i := range rounds {
		d, err := c.Dispatch(&taker{}, 1)
		require.NoError(t, err)
		var wg sync.WaitGroup
		begun := make(chan struct{})
		wg.Go(func() {
			close(begun)
			for err := error(nil); err == nil; {
				_, err = d.Poll(0)
			}
		})
		<-begun
		require.NoError(t, d.Close())
		standin.Complete(q.Num(), 7, uint32(WCSuccess))
		var wcs [1]WC
		n, err := c.Poll(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n, "round %d: the completion was taken from the program", i)
		wg.Wait()
	}
}

// A goroutine polls all the time: Close gets the poll lock all the same.
func TestCloseBesideBusyPolling(t *testing.T) {
	_, p, c, _ := hostSide(t, CQConfig{PollOnly: true})
	busy, err := c.Dispatch(&taker{}, 1)
	require.NoError(t, err)
	q := hostQP(t, p, c, 2)
	b, err := busy.NewBatch(q, 1)
	require.NoError(t, err)
	for name, poll := range map[string]func() error{
		"Poll": func() error { _, err := busy.Poll(3_000_000); return err },
		"PostPoll": func() error {
			b.Write(busy.ID(1), 0, wordAt, wordSGE)
			_, found, err := busy.PostPoll(b, 3_000_000)
			found.Dispatch()
			if errors.Is(err, ErrQueueFull) { // nothing completes
				_, err = busy.Poll(3_000_000)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			other, err := c.Dispatch(&taker{}, 1)
			require.NoError(t, err)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for err := error(nil); err == nil; err = poll() {
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			time.Sleep(20 * time.Millisecond)
			within(t, 4*time.Second, "Close", func() { require.NoError(t, other.Close()) })
			close(stop)
			wg.Wait()
		})
	}
	require.NoError(t, busy.Close())
}

// A poll and a wait that began before the queue was dispatched take nothing of what is
// posted afterwards.
func TestPollsThatBeganBefore(t *testing.T) {
	for name, begin := range map[string]func(c *CQ, wcs []WC) (int, error){
		"poll": func(c *CQ, wcs []WC) (int, error) { return c.PollSpin(wcs, 5_000_000) },
		"wait": func(c *CQ, wcs []WC) (int, error) { return c.Wait(t.Context(), wcs) },
	} {
		t.Run(name, func(t *testing.T) {
			_, _, c, q := hostSide(t, CQConfig{})
			if name == "wait" { // it waits for another one, which ends
				c.wait.waiter <- struct{}{}
			}
			type result struct {
				n   int
				err error
			}
			got := make(chan result, 1)
			go func() {
				var wcs [1]WC
				n, err := begin(c, wcs[:])
				got <- result{n, err}
			}()
			time.Sleep(20 * time.Millisecond)
			if name == "wait" {
				go func() {
					for !c.routed() {
						time.Sleep(time.Millisecond)
					}
					// What an engine posts is faster than the goroutine that waits.
					standin.Complete(q.Num(), 1<<48|5, uint32(WCSuccess)) // tag 5 of the first place
					time.Sleep(10 * time.Millisecond)
					<-c.wait.waiter
				}()
			}
			e := &taker{}
			d, err := c.Dispatch(e, 1)
			require.NoError(t, err)
			defer d.Close()
			if name == "poll" {
				standin.Complete(q.Num(), d.ID(5), uint32(WCSuccess))
			}
			r := <-got
			require.Zero(t, r.n, "it took an engine's completion")
			if name == "wait" {
				require.ErrorIs(t, r.err, ErrInUse)
			}
			_, err = d.Poll(0)
			require.NoError(t, err)
			require.Equal(t, []uint64{5}, e.taken())
		})
	}
}

// A queue turns out to be broken while requesters and receivers of it are made.
func TestBrokenWhileOneIsMade(t *testing.T) {
	_, p, c, _ := hostSide(t, CQConfig{PollOnly: true, Depth: 1024})
	d, err := c.Dispatch(&taker{}, 1)
	require.NoError(t, err)
	broken := errors.New("broken")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				d.rt.broken(broken)
			}
		}
	})
	for range 100 {
		q := hostQP(t, p, c, 2)
		r, err := NewRequester(q, RequesterConfig{})
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.NoError(t, q.Close())
	}
	close(stop)
	wg.Wait()
	require.NoError(t, d.Close())
}

// A queue that is broken tells nothing any more: to wait for the flushed requests of
// each queue pair in turn would take longer with each of them.
func TestBrokenQueueEndsAllSoon(t *testing.T) {
	const n = 5
	_, p, c, _ := hostSide(t, CQConfig{PollOnly: true})
	var rs []*Requester
	calls := make([]Call, n)
	for i := range n {
		r, err := NewRequester(hostQP(t, p, c, 2), RequesterConfig{})
		require.NoError(t, err)
		require.NoError(t, r.Go(t.Context(), &calls[i], WriteWR(wordAt, wordSGE)))
		rs = append(rs, r)
	}
	c.overrun.Store(true)
	begin := time.Now()
	require.ErrorIs(t, calls[0].Wait(t.Context()), ErrOverrun)
	for i := range calls {
		require.ErrorIs(t, calls[i].Wait(t.Context()), ErrOverrun)
	}
	require.Less(t, time.Since(begin), 2*time.Second)
	for _, r := range rs {
		require.NoError(t, r.Close())
	}
}

// A call that is used again, for a list that could not be posted, has not the result
// of the list before.
func TestCallOfNothing(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	r, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	write := WriteWR(wordAt, wordSGE)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var c Call
	for _, f := range []func() error{
		func() error { return r.Go(t.Context(), &c, slices.Repeat([]WR{write}, 9)...) },
		func() error { return r.Go(t.Context(), &c) },
		func() error { r.posting.Try(); defer r.posting.Release(); return r.Go(ended, &c, write) },
		func() error { require.NoError(t, r.Close()); return r.Go(t.Context(), &c, write) },
	} {
		require.NoError(t, r.Go(t.Context(), &c, write))
		standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
		require.NoError(t, c.Wait(t.Context()))
		require.NoError(t, c.Wait(t.Context()))
		require.Error(t, f())
		require.True(t, c.Done())
		require.ErrorIs(t, c.Wait(t.Context()), ErrState)
	}
}

// A goroutine waits for the last list that was started, which takes its time: a wait
// for room does not fail with ErrQueueFull.
func TestRoomIsWaitedForWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := bareRouter(1, 1)
		r := requestersOf(rt)[0]
		r.freed = make(chan struct{}, 1)
		r.unwaited.Store(1)
		time.AfterFunc(900*time.Millisecond, func() { r.unwaited.Store(0) })
		require.NoError(t, r.waitForSlot(t.Context()))
		r.unwaited.Store(1)
		begin := time.Now()
		require.ErrorIs(t, r.waitForSlot(t.Context()), ErrQueueFull)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// Requesters come and go, each cut off by a reset, beside one that stays: none takes
// a place for good.
func TestPlacesOfThoseThatWereCutOff(t *testing.T) {
	_, p, c, q := hostSide(t, CQConfig{PollOnly: true})
	stays, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	other := hostQP(t, p, c, 2)
	for range 8 {
		r, err := NewRequester(other, RequesterConfig{})
		require.NoError(t, err)
		var call Call
		require.NoError(t, r.Go(t.Context(), &call, WriteWR(wordAt, wordSGE)))
		require.NoError(t, other.ToReset())
		require.ErrorIs(t, call.Wait(t.Context()), WCFlushed)
		require.NoError(t, r.Close())
		require.NoError(t, other.Init())
		require.NoError(t, other.Connect(Endpoint{Type: RC, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	}
	require.Len(t, *stays.router.table.Load(), 3, "place 0 is no requester's")
	require.NoError(t, stays.Close())
}
