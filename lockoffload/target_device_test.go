//go:build linux

package lockoffload_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// A region has one server and one agent, is not laid out again under them, and has
// WRITEs in order.
func TestRegionHasOneOwner(t *testing.T) {
	l := lockoffload.Layout{Slots: 1, Size: 8}
	r := newRig(t, l, long)
	_, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid})
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	agent, err := lockoffload.NewAgent(lockoffload.AgentConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid})
	require.NoError(t, err)
	_, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid})
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	require.NoError(t, agent.Close())
	agent, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid})
	require.NoError(t, err)
	require.NoError(t, agent.Close())

	mr, err := r.b.pd.AllocMR(l.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	reg, err := lockoffload.NewRegion(mr, l)
	require.NoError(t, err)
	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: reg, GID: r.b.gid})
	require.NoError(t, err)
	_, err = lockoffload.NewRegion(mr, l)
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	require.NoError(t, srv.Close())
	_, err = lockoffload.NewRegion(mr, l)
	require.NoError(t, err)

	odd, err := r.b.pd.RegisterMR(make([]byte, l.Bytes()+8)[4:], verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	_, err = lockoffload.NewRegion(odd, l)
	require.ErrorIs(t, err, lockoffload.ErrConfig, "no atomic would do")
	require.NoError(t, odd.Close())

	relaxed, err := r.b.pd.AllocMR(l.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic | verbs.RelaxedOrder})
	if errors.Is(err, verbs.ErrUnsupported) {
		t.Log(err)
		return
	}
	require.NoError(t, err)
	_, err = lockoffload.NewRegion(relaxed, l)
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	require.NoError(t, relaxed.Close())
}

// The target's own queue pair fails, and a client's cannot be fenced: nothing is given
// away meanwhile, the server says so, and goes on when it can.
func TestServerHeals(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, time.Second)
	var broken atomic.Bool
	broken.Store(true)
	r.srv.FenceBy(func(qp *verbs.QP, fence func(*verbs.QP) error) error {
		if broken.Load() {
			return errors.New("no fence today")
		}
		return fence(qp)
	})
	_, qp, s := r.dead(lockoffload.Exclusive)
	require.NoError(t, r.srv.BreakLoopback())
	require.NoError(t, qp.ToError())
	require.Eventually(t, func() bool { return r.srv.Err() != nil }, stuck, time.Millisecond)
	require.ErrorContains(t, r.srv.Err(), "no fence today")
	require.Error(t, s.Close())
	select {
	case <-s.Done():
		t.Fatal("a session that was not fenced is over")
	default:
	}
	lock, _ := r.reg.Left(0)
	require.NotZero(t, lock, "and what it held is free")
	broken.Store(false)
	require.Eventually(t, func() bool { lock, _ := r.reg.Left(0); return lock == 0 && r.srv.Err() == nil }, stuck, time.Millisecond)
	<-s.Done()
	require.NoError(t, s.Close())
	other, _ := r.client(lockoffload.Retry{})
	h, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
}

// What a session held cannot be taken back for now: its place is not given to anybody else
// before it is.
func TestPlaceIsKeptUntilItsLocksAreFree(t *testing.T) {
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 1}, long)
	c, s := r.client(lockoffload.Retry{})
	_, _, err := c.Lock(within(t, stuck), 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	giveBack, err := r.srv.LoseWay()
	require.NoError(t, err)
	for range 2 {
		require.Error(t, s.Evict())
		<-s.Done()
		lock, _ := r.reg.Left(0)
		require.NotZero(t, lock)
		_, err = r.srv.Admit(nil)
		require.ErrorIs(t, err, lockoffload.ErrFull)
		require.Zero(t, r.srv.Stats().Ended)
	}
	giveBack()
	require.NoError(t, s.Evict())
	lock, _ := r.reg.Left(0)
	require.Zero(t, lock)
	require.EqualValues(t, 1, r.srv.Stats().Recovered)
	next, err := r.srv.Admit(nil)
	require.NoError(t, err)
	require.NoError(t, next.Close())
}

// A place that was given up takes no connection, also by a queue pair that stays its
// program's: a client that comes late would change what others have locked.
func TestPlaceThatIsGivenUpTakesNoConnection(t *testing.T) {
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2}, long)
	qp, _ := r.a.qp(t)
	remote, err := qp.Endpoint()
	require.NoError(t, err)
	theirs, _ := r.b.qp(t)
	for _, given := range []*verbs.QP{nil, theirs} {
		s, err := r.srv.Admit(given)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Error(t, s.Connect(remote), "it was reset, or is no more")
	}
}

// A heartbeat that comes in when the target has made up its mind, and before the queue pair
// is fenced, may have been acknowledged: the client has its lock for a lease from then on.
func TestLastHeartbeatOfTheDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, time.Second)
	var dead atomic.Pointer[lockoffload.Session]
	var came atomic.Int64
	r.srv.FenceBy(func(qp *verbs.QP, fence func(*verbs.QP) error) error {
		if s := dead.Load(); s != nil && s.QP() == qp && came.CompareAndSwap(0, time.Now().UnixNano()) {
			if err := r.reg.Beat(s, 1000); err != nil {
				return err
			}
		}
		return fence(qp)
	})
	_, qp, s := r.dead(lockoffload.Exclusive)
	dead.Store(s)
	require.NoError(t, qp.ToError())
	<-s.Done()
	require.Eventually(t, func() bool { lock, _ := r.reg.Left(0); return lock == 0 }, stuck, time.Millisecond)
	require.Greater(t, time.Since(time.Unix(0, came.Load())), r.lease)
}

// One client's queue pair cannot be fenced. What others left is taken back all the same.
func TestServerGoesOnBesideTrouble(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, time.Second)
	_, stays := r.client(lockoffload.Retry{})
	var healed atomic.Bool
	r.srv.FenceBy(func(qp *verbs.QP, fence func(*verbs.QP) error) error {
		if qp == stays.QP() && !healed.Load() {
			return errors.New("no fence today")
		}
		return fence(qp)
	})
	require.Error(t, stays.Close())
	_, qp, _ := r.dead(lockoffload.Exclusive)
	require.NoError(t, qp.ToError())
	other, _ := r.client(lockoffload.Retry{})
	isSoon(t, "lock", func() error {
		h, _, err := other.Lock(ctx, 0, lockoffload.LockOptions{})
		if err == nil {
			err = h.Unlock(ctx)
		}
		return err
	})
	require.Error(t, r.srv.Err())
	healed.Store(true)
	require.Eventually(t, func() bool { return r.srv.Err() == nil }, stuck, time.Millisecond)
}

// A server that could not fence a session says so when it is closed. By then the session
// is over all the same: its queue pair is no more.
func TestCloseDestroysWhatItCannotFence(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	first := r.srv // its Close must not fail
	require.NoError(t, first.Close())
	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: long})
	require.NoError(t, err)
	r.srv = srv
	qp, cq := r.a.qp(t)
	s, in := r.connect(qp)
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	_, _, err = c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	srv.FenceBy(func(*verbs.QP, func(*verbs.QP) error) error { return errors.New("no fence today") })
	require.ErrorContains(t, srv.Close(), "no fence today")
	<-s.Done()
	lock, _ := r.reg.Left(0)
	require.NotZero(t, lock, "nobody knows what may still execute")
	r.srv = first
	_ = c.Close() // of a session that is over
}

// What no session has that lives does not stay; what one has that lives does, and so does
// what an agent has.
func TestStraysAreTakenBack(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 18, Size: 8}, patient)
	require.NoError(t, r.reg.LeaveStray(16)) // its turn is the end of the first lease
	require.NoError(t, r.reg.LeftLocked(16))
	c, _ := r.client(lockoffload.Retry{})
	shared, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
	require.NoError(t, err)
	h, _, err := c.Lock(ctx, 2, lockoffload.LockOptions{})
	require.NoError(t, err)
	require.NoError(t, r.reg.LeaveStray(17)) // its turn is the end of the second lease
	require.Eventually(t, func() bool { lock, readers := r.reg.Left(17); return lock|readers == 0 }, stuck, 50*time.Millisecond)
	lock, readers := r.reg.Left(16)
	require.NotZero(t, lock)
	require.Zero(t, readers)
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, shared.Unlock(ctx))
}

// A server that failed left a lock. The next one takes it back, though its own clients
// have the same owner numbers.
func TestLocksOfTheServerBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, patient)
	require.NoError(t, r.srv.Close())
	require.NoError(t, r.reg.LeaveLock(0))
	var err error
	r.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: r.lease})
	require.NoError(t, err)
	srv := r.srv
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	c, _ := r.client(lockoffload.Retry{})
	isSoon(t, "lock", func() error {
		h, _, err := c.Lock(within(t, stuck), 0, lockoffload.LockOptions{})
		if err == nil {
			err = h.Unlock(within(t, stuck))
		}
		return err
	})
}

// What is left of a server's clients is nothing of the next one's.
func TestNextServersEpochs(t *testing.T) {
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 8}, long)
	epochs := func() (all []uint16) {
		for range 8 {
			s, err := r.srv.Admit(nil)
			require.NoError(t, err)
			all = append(all, s.Info().Epoch)
		}
		require.NoError(t, r.srv.Close())
		return all
	}
	before := epochs()
	var err error
	r.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: r.lease})
	require.NoError(t, err)
	require.NotEqual(t, before, epochs())
}

// A server that failed left readers. The next one takes their bits back before it admits
// anybody: a bit of an owner number that is given out again would pass for that client's.
func TestReadersOfAFailedServer(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 4, Size: 8, Clients: 2}, long)
	require.NoError(t, r.srv.Close())
	for slot := range 2 {
		require.NoError(t, r.reg.LeaveReader(slot, 1))
		require.NoError(t, r.reg.LeaveReader(slot, 2))
	}
	require.NoError(t, r.reg.LeavePieces(2))
	require.NoError(t, r.reg.LeftLocked(3))
	var err error
	r.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: r.lease})
	require.NoError(t, err)
	srv := r.srv
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	require.EqualValues(t, 5, srv.Stats().Recovered)
	require.Zero(t, r.reg.Versions(2)[1], "nobody takes the pieces for whole")
	for slot := range 3 {
		lock, readers := r.reg.Left(slot)
		require.Zero(t, lock|readers)
	}
	lock, _ := r.reg.Left(3)
	require.NotZero(t, lock, "an agent may live beside it")

	cs := r.clients(2, lockoffload.Retry{})
	h, _, err := cs[0].Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, upOnce(ctx, cs[1]))
}

// A client of the agent reaches no memory through its queue pair: when the server has
// fenced it, nothing of it writes any more.
func TestAgentsQueuePairsReachNoMemory(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	qp, cq, err := r.link(77)
	require.NoError(t, err)
	mr, err := r.a.pd.AllocMR(8, verbs.MRConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	b, err := qp.NewBatch(1)
	require.NoError(t, err)
	b.Write(1, verbs.Signaled, r.reg.Remote().At(0), mr.SGE(0, 8))
	_, err = b.Post()
	require.NoError(t, err)
	wcs := make([]verbs.WC, 1)
	_, err = cq.Wait(ctx, wcs)
	require.NoError(t, err)
	require.Error(t, wcs[0].Err())
	t.Log(wcs[0].Err())
}

// When the agent is gone for good, chains are carried out from here.
func TestDoWithoutItsAgent(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	c := r.side()
	var qp *verbs.QP
	c.UseAgent(r.caller(func(cfg *lockoffload.CallerConfig) {
		connect := cfg.Connect
		cfg.Connect = func(ctx context.Context) (_ *verbs.QP, cq *verbs.CQ, err error) {
			if qp != nil {
				return nil, nil, errors.New("gone for good")
			}
			qp, cq, err = connect(ctx)
			return qp, cq, err
		}
	}))
	up := func() (lockoffload.Protocol, error) {
		res, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		return res.Protocol, err
	}
	form, err := up()
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolAgent, form)
	require.NoError(t, qp.ToError())
	require.Eventually(t, func() bool {
		form, err := up()
		return err == nil && form == lockoffload.ProtocolTwoStep
	}, stuck, time.Millisecond)
}

// Of a WRITE of which half has come nothing stays, and the lock is given back when READs
// are over that may have seen that half.
func TestHalfAWriteIsTakenBack(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 256}, long)
	dying, s := r.client(lockoffload.Retry{})
	other, _ := r.client(lockoffload.Retry{})
	require.NoError(t, upOnce(ctx, other))
	died, _, err := dying.DieAfter(ctx, "update", 0, 3, true)
	require.NoError(t, err)
	require.True(t, died)
	ended := time.Now()
	require.NoError(t, s.Evict())
	require.GreaterOrEqual(t, time.Since(ended), 200*time.Millisecond)
	lock, _ := r.reg.Left(0)
	require.Zero(t, lock)
	data, res, err := other.Read(ctx, 0, make([]byte, 256))
	require.NoError(t, err)
	require.EqualValues(t, 1, number(data))
	require.Equal(t, lockoffload.ProtocolReadLocked, res.Protocol)
	require.NoError(t, upOnce(ctx, other))
	readIn(t, ctx, lockoffload.ProtocolRead, func(ctx context.Context) (lockoffload.Result, error) {
		data, res, err := other.Read(ctx, 0, make([]byte, 256))
		require.NoError(t, err)
		require.EqualValues(t, 2, number(data))
		return res, err
	})
}
