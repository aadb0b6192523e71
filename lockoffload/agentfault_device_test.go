//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// side is an initiator that works on the agent's region without it.
func (r *agentRig) side() *lockoffload.Client {
	c, _ := r.client(lockoffload.Retry{})
	return c
}

func (r *agentRig) version(c *lockoffload.Caller, slot int) uint64 {
	r.t.Helper()
	ch := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{readOf(0, r.layout.Size)}}
	_, err := c.Do(within(r.t, stuck), &ch)
	require.NoError(r.t, err)
	return ch.Accesses[0].Version
}

func TestAgentMeetsHeldLock(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 8}, nil)
	c, side := r.caller(nil), r.side()
	held, _, err := side.Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)

	ch := lockoffload.Chain{Tries: 4, Accesses: []lockoffload.Access{writeOf(0, "x")}}
	res, err := c.Do(ctx, &ch)
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.Equal(t, 4, res.Tries)

	const deadline = 500 * time.Millisecond // a hundred of the longest pauses
	ch = lockoffload.Chain{Deadline: deadline, Accesses: []lockoffload.Access{writeOf(0, "x")}}
	start := time.Now()
	res, err = c.Do(ctx, &ch)
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.GreaterOrEqual(t, time.Since(start), deadline)
	require.Greater(t, res.Tries, 1)

	_, err = c.Do(ctx, &lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{writeOf(0, "x")}})
	require.NoError(t, err, "another slot is free")

	done := make(chan error, 1)
	go func() { // waits until the holder leaves
		ch := lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "y")}}
		_, err := c.Do(ctx, &ch)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, done)
	require.NoError(t, held.Unlock(ctx), "nobody took the lock away")
	require.NoError(t, <-done)
	require.EqualValues(t, 1, r.version(c, 0), "only the last one wrote")
}

func TestAgentBusy(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, func(cfg *lockoffload.AgentConfig) { cfg.Queue = 4 })
	side := r.side()
	held, _, err := side.Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)
	var wg sync.WaitGroup
	var busy, executed atomic.Int64
	for range 3 {
		c := r.caller(nil)
		for range 8 {
			wg.Go(func() {
				ch := lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}}
				switch _, err := c.Do(ctx, &ch); {
				case errors.Is(err, lockoffload.ErrBusy):
					busy.Add(1)
				case err != nil:
					t.Error(err)
				default:
					executed.Add(1)
				}
			})
		}
	}
	require.Eventually(t, func() bool { return busy.Load() >= 20 }, stuck, time.Millisecond, "answered while the lock is held")
	require.NoError(t, held.Unlock(ctx))
	wg.Wait()
	require.EqualValues(t, 24, busy.Load()+executed.Load())
	require.EqualValues(t, executed.Load(), r.version(r.caller(nil), 0))
}

// The same request twice on one connection, and again on the next one.
func TestAgentExecutesOnce(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	mr, err := r.a.pd.AllocMR(8192, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "once")}}
	n := ch.Request(mr.Bytes()[:4096:4096], 77, 1)
	var first []byte
	for conn := range uint64(2) {
		qp, cq, err := r.link(77)
		require.NoError(t, err)
		recvs, err := qp.NewRecvBatch(2)
		require.NoError(t, err)
		sends, err := qp.NewBatch(2)
		require.NoError(t, err)
		for i := range 2 {
			recvs.Recv(uint64(i), mr.SGE(4096+i*1024, 1024))
			sends.Send(9, 0, mr.SGE(0, n))
		}
		_, err = recvs.Post()
		require.NoError(t, err)
		_, err = sends.Post()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		_, err = cq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		require.NoError(t, wcs[0].Err())
		reply := append([]byte(nil), mr.Bytes()[4096:4096+wcs[0].Len()]...)
		seq, status, err := lockoffload.ReplyStatus(reply)
		require.NoError(t, err)
		require.NoError(t, status)
		require.EqualValues(t, 1, seq)
		if first == nil {
			first = reply
		}
		require.Equal(t, first, reply)
		// The second one comes too, before its connection is replaced.
		require.Eventually(t, func() bool { return r.agent.Stats().Repeated == 1+2*conn }, stuck, time.Millisecond)
	}
	require.EqualValues(t, 1, r.agent.Stats().Done)
	require.EqualValues(t, 1, r.version(r.caller(nil), 0))
}

// The connection breaks again and again, at either end, in the middle of
// whatever goes on. Every chain is executed once.
func TestAgentSurvivesReconnects(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 8}, nil)
	var mu sync.Mutex
	var near *verbs.QP
	connects := 0
	c := r.caller(func(cfg *lockoffload.CallerConfig) {
		connect := cfg.Connect
		cfg.Reissue = time.Hour // only a new connection sends again
		cfg.Connect = func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
			qp, cq, err := connect(ctx)
			mu.Lock()
			defer mu.Unlock()
			near, connects = qp, connects+1
			return qp, cq, err
		}
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var executed [2]atomic.Uint64
	_, err := c.Do(ctx, &lockoffload.Chain{}) // from now on chains say for which agent they are
	require.NoError(t, err)
	for g := range 4 {
		wg.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ch := lockoffload.Chain{Slot: i % 2, Accesses: []lockoffload.Access{writeOf(0, "x")}}
				if _, err := c.Do(ctx, &ch); err != nil {
					t.Error(err)
					return
				}
				executed[i%2].Add(1)
			}
		})
	}
	const breaks = 15
	for i := range breaks {
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return connects > i
		}, stuck, time.Millisecond)
		time.Sleep(15 * time.Millisecond)
		mu.Lock()
		require.NoError(t, near.ToError())
		mu.Unlock()
	}
	for slot := range executed { // if one was too soon for all of them
		require.Eventually(t, func() bool { return executed[slot].Load() > 0 }, stuck, time.Millisecond)
	}
	close(stop)
	wg.Wait()
	mu.Lock() // it may still connect anew
	connected := connects
	mu.Unlock()
	require.GreaterOrEqual(t, connected, breaks)
	for slot := range executed {
		require.Equal(t, executed[slot].Load(), r.version(c, slot))
	}
	t.Logf("%d connections, %d and %d chains, %+v", connected, executed[0].Load(), executed[1].Load(), r.agent.Stats())
}

// Callers of the agent and one-sided clients count in one record.
func TestAgentBesideClients(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	const each = 100
	var wg sync.WaitGroup
	for range 2 {
		side, c := r.side(), r.caller(nil)
		wg.Go(func() {
			for range each {
				_, err := updateAsync(ctx, side, 0, func(old []byte) ([]byte, error) {
					return binary.LittleEndian.AppendUint64(nil, counted(old)+1), nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
			if err := side.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for n := 0; n < each; {
				read := lockoffload.Chain{Shared: true, Accesses: []lockoffload.Access{readOf(0, 8)}}
				if _, err := c.Do(ctx, &read); err != nil {
					t.Error(err)
					return
				}
				next := binary.LittleEndian.AppendUint64(nil, counted(read.Accesses[0].Data)+1)
				write := lockoffload.Chain{Accesses: []lockoffload.Access{
					compareWith(0, read.Accesses[0].Version), writeOf(0, string(next)),
				}}
				switch _, err := c.Do(ctx, &write); {
				case err == nil:
					n++
				case !errors.Is(err, lockoffload.ErrVersionMismatch):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 8)}}
	_, err := r.caller(nil).Do(ctx, &ch)
	require.NoError(t, err)
	require.EqualValues(t, 4*each, counted(ch.Accesses[0].Data))
	t.Logf("%+v", r.agent.Stats())
}

func counted(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(data)
}

// Chains that no call waits for any more leave nothing behind in the caller.
func TestAgentChainGivenUp(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	c := r.caller(nil)
	done, unknown := uint64(0), uint64(0)
	for i := range 200 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i*2)*time.Microsecond)
		ch := lockoffload.Chain{Deadline: time.Second, Accesses: []lockoffload.Access{writeOf(0, "x")}}
		switch _, err := c.Do(short, &ch); {
		case err == nil:
			done++
		case errors.Is(err, lockoffload.ErrOutcomeUnknown):
			unknown++
		default:
			require.ErrorIs(t, err, context.DeadlineExceeded, "not even begun")
		}
		cancel()
	}
	require.Positive(t, unknown)
	var wg sync.WaitGroup
	for range 2 * r.agent.Limits().Window {
		wg.Go(func() {
			ch := lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}}
			if _, err := c.Do(ctx, &ch); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	done += 2 * uint64(r.agent.Limits().Window)
	require.GreaterOrEqual(t, r.version(c, 0), done)
	require.LessOrEqual(t, r.version(c, 0), done+unknown)
	t.Logf("%d done, %d unknown", done, unknown)
}

// A client whose first chain got no reply cannot say for which agent it was. One that does
// not know the client executes nothing of it once more.
func TestAgentFirstChainWithoutReply(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 8}, nil)
	side := r.side()
	held, _, err := side.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	var near *verbs.QP
	c := r.caller(func(cfg *lockoffload.CallerConfig) {
		id, connect := cfg.Client, cfg.Connect
		cfg.Connect = func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
			if near != nil {
				r.agent.Forget(id)
				if err := held.Unlock(ctx); err != nil {
					return nil, nil, err
				}
				for r.agent.Stats().Done == 0 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}
			var cq *verbs.CQ
			var err error
			near, cq, err = connect(ctx)
			return near, cq, err
		}
	})
	first := near
	over := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		over <- err
	}()
	require.Eventually(t, func() bool { return r.agent.Stats().Tries > 0 }, stuck, time.Millisecond)
	require.NoError(t, first.ToError())
	require.ErrorIs(t, <-over, lockoffload.ErrOutcomeUnknown)
	require.EqualValues(t, 1, r.version(c, 0))
}

// A client that the target forgot, and a caller that is closed.
func TestAgentForgetsClient(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	refused := errors.New("the target knows no such client")
	var gone atomic.Bool
	c := r.caller(func(cfg *lockoffload.CallerConfig) {
		connect := cfg.Connect
		cfg.Connect = func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
			if gone.Load() {
				return nil, nil, refused
			}
			return connect(ctx)
		}
	})
	write := func() error {
		_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		return err
	}
	require.NoError(t, write())
	gone.Store(true)
	r.agent.Forget(r.ids.Load())
	require.ErrorIs(t, write(), lockoffload.ErrOutcomeUnknown)
	require.ErrorIs(t, write(), refused, "and now it is known that nothing will be sent")

	c = r.caller(func(cfg *lockoffload.CallerConfig) {
		id := cfg.Client
		cfg.Connect = func(context.Context) (*verbs.QP, *verbs.CQ, error) { return r.link(id) }
	})
	require.NoError(t, write())
	require.NoError(t, c.Close())
	require.ErrorIs(t, write(), lockoffload.ErrClosed)
	require.EqualValues(t, 2, r.version(r.caller(nil), 0))
}
