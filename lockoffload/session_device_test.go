//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// short is a lease that runs out for dead clients, but not for others because the
// machine stands still for a moment.
const short = 3 * time.Second

// patient is a lease that clients keep on a busy host too. It is for tests in which a
// lock is held that nothing is to end.
const patient = 6 * time.Second

// dead makes a client that stops its heartbeat without a word, as if its host
// had died: its queue pair goes to ERROR.
func (r *rig) dead(mode lockoffload.Mode) (*lockoffload.Lock, *verbs.QP, *lockoffload.Session) {
	qp, cq, s, in := r.admit()
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	h, _, err := c.Lock(within(r.t, stuck), 0, lockoffload.LockOptions{Mode: mode})
	require.NoError(r.t, err)
	return h, qp, s
}

// A client that dies right after its first lock command has sent a heartbeat
// before it: else the target would take it for one that has not begun yet.
func TestFirstHeartbeatIsAheadOfLocks(t *testing.T) {
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, time.Minute)
	qp, cq, _, in := r.admit()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other goroutine runs before the look
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	require.NotZero(t, c.Heartbeat())
	require.NoError(t, c.Close())
}

// Clients that come and go, however fast, leave their places to others.
func TestPlacesOfThoseThatLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2}, time.Second)
	epochs := map[[2]uint16]bool{}
	for i := range 8 {
		qp, cq, s, in := r.admit()
		epochs[[2]uint16{in.Owner, in.Epoch}] = true
		c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		select {
		case <-s.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("client %d keeps its place", i)
		}
	}
	require.Eventually(t, func() bool { return r.srv.Stats().Ended == 8 }, stuck, time.Millisecond)
	require.Len(t, epochs, 8, "nobody is taken for somebody before")
	_, _, next, _ := r.admit() // a silent client, in the place of one that has said goodbye
	time.Sleep(500 * time.Millisecond)
	require.EqualValues(t, 8, r.srv.Stats().Ended)
	require.NoError(t, next.Close())
}

func TestDeadHolderIsRecovered(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]lockoffload.Mode{"exclusive": lockoffload.Exclusive, "shared": lockoffload.Shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t, stuck)
			r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, short)
			h, qp, s := r.dead(mode)
			other, _ := r.client(lockoffload.Retry{})
			died := time.Now()
			require.NoError(t, qp.ToError())
			next, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
			require.NoError(t, err)
			took := time.Since(died)
			require.Greater(t, took, short, "not before the dead client's lease was over")
			require.Less(t, took, 3*short)
			t.Logf("recovered after %.2f leases", took.Seconds()/short.Seconds())
			select {
			case <-s.Done():
			default:
				t.Error("the lock was given away before the session had ended")
			}
			select {
			case <-h.Lost():
			case <-ctx.Done():
				t.Error("the dead holder was not told")
			}
			_, err = h.Write(ctx, 0, nil)
			require.Error(t, err)
			require.NoError(t, next.Unlock(ctx))
			require.Eventually(t, func() bool { return r.srv.Stats().Expired == 1 }, stuck, 10*time.Millisecond)
		})
	}
}

// A holder whose process stands still wakes up after its lease and lets a WRITE
// go that it decided on before: the target must not execute it.
func TestLateWriteIsNotExecuted(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, short)
	qp, cq, s, in := r.admit()
	// This client knows no lease, so that nothing but the target stops it; the
	// heartbeat stops after one.
	mr, err := r.a.pd.AllocMR(64, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	b, err := qp.NewBatch(4)
	require.NoError(t, err)
	do := func(ctx context.Context) error {
		if _, err := b.Post(); err != nil {
			return err
		}
		wcs := make([]verbs.WC, 1)
		if _, err := cq.Wait(ctx, wcs); err != nil {
			return err
		}
		return wcs[0].Err()
	}
	tag := uint64(in.Owner)<<48 | uint64(in.Epoch)<<32 | 1
	slot := uint64(in.Layout.Clients * 64)
	binary.LittleEndian.PutUint64(mr.Bytes()[8:], 1)
	b.Write(0, 0, in.Region.At(0), mr.SGE(8, 8))
	b.CmpSwap(0, verbs.Signaled, in.Region.At(slot), 0, tag, mr.SGE(0, 8))
	require.NoError(t, do(ctx))

	other, _ := r.client(lockoffload.Retry{})
	_, err = updateAsync(ctx, other, 0, func(old []byte) ([]byte, error) {
		select {
		case <-s.Done():
		default:
			t.Error("the lock was given away before the session had ended")
		}
		return []byte("fresh"), nil
	})
	require.NoError(t, err)
	require.NoError(t, other.Flush(ctx))
	copies := slot + 40
	b.Write(0, 0, in.Region.At(copies), mr.SGE(8, 8))
	b.Write(0, verbs.Signaled, in.Region.At(copies+32), mr.SGE(8, 8))
	// rxe sends again without end; what matters is that nothing comes of it.
	brief, stop := context.WithTimeout(ctx, time.Second)
	require.Error(t, do(brief))
	stop()
	data, _, err := other.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, "fresh", string(data))
}

// The lease runs out while WRITEs are under way, because nothing comes through:
// the client is told, and what it wrote last is there or is not.
func TestLeaseRunsOutUnderWay(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, short)
	c, s := r.client(lockoffload.Retry{})
	other, _ := r.client(lockoffload.Retry{})
	time.AfterFunc(200*time.Millisecond, func() { _ = s.Evict() }) // the target's end goes
	var last uint64
	var err error
	for err == nil {
		var res lockoffload.Result
		res, err = updateAsync(ctx, c, 0, func(old []byte) ([]byte, error) {
			return binary.LittleEndian.AppendUint64(nil, number(old)+1), nil
		})
		if err == nil {
			err = res.Commit.Wait(ctx)
		}
		if err == nil {
			last = res.Version
		}
	}
	require.ErrorContains(t, err, "lockoffload")
	select {
	case <-c.Lost():
	case <-ctx.Done():
		t.Fatal("not told")
	}
	_, _, err = c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.ErrorIs(t, err, lockoffload.ErrLost)
	data, res, err := other.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, res.Version, number(data))
	require.GreaterOrEqual(t, res.Version, last, "what was acknowledged is there")
	require.LessOrEqual(t, res.Version, last+1)

	// It goes on with a new queue pair and a new identity.
	qp, cq, _, in := r.admit()
	require.NoError(t, c.Reconnect(ctx, qp, cq, in))
	_, err = updateAsync(ctx, c, 0, func(old []byte) ([]byte, error) {
		return binary.LittleEndian.AppendUint64(nil, number(old)+1), nil
	})
	require.NoError(t, err)
	require.NoError(t, c.Flush(ctx))
	data, _, err = other.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, res.Version+1, number(data))
	require.NoError(t, c.Close())
}

// A client that closes frees what it held at once.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2}, 5*time.Second)
	qp, cq, s, in := r.admit()
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	_, _, err = c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	other, _ := r.client(lockoffload.Retry{})
	_, err = r.srv.Admit(nil)
	require.ErrorIs(t, err, lockoffload.ErrFull)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	began := time.Now()
	h, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	require.Less(t, time.Since(began), 4*time.Second)
	require.NoError(t, h.Unlock(ctx))
	<-s.Done()
	var again *lockoffload.Session
	require.Eventually(t, func() bool { // its place is given up behind what it held
		again, err = r.srv.Admit(nil)
		return err == nil
	}, stuck, 5*time.Millisecond)
	require.Equal(t, in.Owner, again.Info().Owner)
	require.NotEqual(t, in.Epoch, again.Info().Epoch)
	_, _, err = c.Lock(context.Background(), 0, lockoffload.LockOptions{})
	require.ErrorIs(t, err, lockoffload.ErrClosed)
	_, _, err = c.Read(context.Background(), 0, nil)
	require.ErrorIs(t, err, lockoffload.ErrClosed)
}

// Goroutines of one client take turns like clients do, and one that waits for a
// lock keeps no other from giving it back.
func TestGoroutinesOfOneClient(t *testing.T) {
	ctx := within(t, stuck)
	c := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 8}, nil).inTurn()
	const workers, each = 6, 20
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for range each {
				if err := incrementHeld(ctx, c, []lockoffload.Mode{lockoffload.Exclusive, lockoffload.Fair}[i%2]); err != nil {
					t.Error(err)
					return
				}
				h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
				if err == nil {
					_, _, err = h.Read(ctx, 0, make([]byte, 8))
				}
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err == nil {
					_, _, err = c.Read(ctx, 0, make([]byte, 8))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	data, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, uint64(workers*each), number(data))
}

// The error of an update that no call waited for is returned once: by Wait, else
// by Flush.
func TestOutcomeIsTold(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	for _, wait := range []bool{true, false} {
		qp, cq, s, in := r.admit()
		c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
		require.NoError(t, err)
		res, err := updateAsync(ctx, c, 0, func([]byte) ([]byte, error) {
			_ = qp.ToError() // a post is taken, and flushed
			return []byte("x"), nil
		})
		switch {
		case err != nil: // or refused
			require.ErrorIs(t, err, lockoffload.ErrBroken)
		case wait:
			err = res.Commit.Wait(ctx)
			require.ErrorIs(t, err, lockoffload.ErrOutcomeUnknown)
			require.ErrorIs(t, err, lockoffload.ErrBroken)
			require.NoError(t, c.Flush(ctx))
		default:
			require.ErrorIs(t, c.Flush(ctx), lockoffload.ErrOutcomeUnknown)
			require.NoError(t, c.Flush(ctx))
		}
		_, _, err = c.Read(ctx, 0, make([]byte, 8))
		require.ErrorIs(t, err, lockoffload.ErrBroken)
		require.NoError(t, s.Evict())
		require.NoError(t, c.Close())
	}
}
