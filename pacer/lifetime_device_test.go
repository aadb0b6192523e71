//go:build linux

package pacer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// one takes a single completion.
func one(t *testing.T, q *pacer.QP) *verbs.WC {
	t.Helper()
	var wcs [1]verbs.WC
	n, err := q.Wait(within(t), wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	return &wcs[0]
}

// post posts one READ.
func post(t *testing.T, q *pacer.QP, id uint64, from verbs.Remote, into ...verbs.SGE) {
	t.Helper()
	b, err := q.NewBatch(1)
	require.NoError(t, err)
	b.Add(verbs.WR{ID: id, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: from, Local: into})
	_, err = b.Post()
	require.NoError(t, err)
}

// A READ of which pieces came, and then one could not be posted, has not succeeded.
func TestPieceThatCannotBePosted(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 1})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	post(t, q, 7, r.b.mr.Region().At(0), r.a.mr.SGE(0, 1000000))
	r.p.Pause(true)
	require.Eventually(t, func() bool {
		q.Poll(make([]verbs.WC, 1))
		return r.p.Stats().Outstanding == 0 && r.p.Stats().Granted > 0
	}, stuck, time.Millisecond)
	require.NoError(t, q.QP().Quiesce())
	r.p.Pause(false)
	wc := one(t, q)
	require.EqualValues(t, 7, wc.ID())
	require.Equal(t, verbs.WCFlushed, wc.Status())
	require.Zero(t, wc.Len())
	r.idle()
}

// A queue pair that is closed while it is being recovered leaves the requests of others
// alone.
func TestCloseDuringRecovery(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	var other *pacer.QP
	require.ErrorIs(t, q.Recover(func(*verbs.QP) error {
		require.NoError(t, q.Close())
		other, _ = r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
		post(t, other, 9, r.b.mr.Region().At(0), r.a.mr.SGE(0, 4096))
		return nil
	}), pacer.ErrClosed)
	require.Positive(t, r.p.Stats().Outstanding, "nobody has polled")
	require.NoError(t, one(t, other).Err())
	r.idle()
}

// The completion queue has room for all that may complete at a time: more than expected by
// the program, which signals a few of its requests.
func TestRoomForCompletions(t *testing.T) {
	r := newRig(t, pacer.Config{MTU: 1024, Slice: 1024, Threshold: 1 << 30})
	cq, err := r.a.dev.CreateCQ(verbs.CQConfig{Depth: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	var qs []*pacer.QP
	for range 4 {
		q, _ := r.paced(cq, verbs.QPConfig{MaxSendWR: 64}, pacer.FlowConfig{})
		qs = append(qs, q)
	}
	for i, q := range qs {
		post(t, q, uint64(i), r.b.mr.Region().At(0), r.a.mr.SGE(i<<16, 12<<10))
	}
	require.GreaterOrEqual(t, r.p.Stats().Outstanding, int64(4*(12<<10)), "nothing of them is held")
	time.Sleep(50 * time.Millisecond) // the device is done with them, and the program has not polled
	for range qs {
		require.NoError(t, one(t, qs[0]).Err())
	}
	r.idle()
}

// A READ that can never succeed ends with its error: only what a connection lost is
// kept for the next one.
func TestReissueOfWhatIsWrong(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 1})
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{Reissue: true})
	wrong := r.b.mr.Region().At(0)
	wrong.RKey ^= 0x5500
	post(t, q, 1, wrong, r.a.mr.SGE(0, 10000))
	post(t, q, 2, r.b.mr.Region().At(0), r.a.mr.SGE(0, 10000))
	wc := one(t, q)
	require.EqualValues(t, 1, wc.ID())
	require.Equal(t, verbs.WCRemoteAccess, wc.Status())
	r.reconnect(q, peer)
	wc = one(t, q)
	require.EqualValues(t, 2, wc.ID())
	require.NoError(t, wc.Err())
	r.idle()
}

// reconnect recovers a queue pair.
func (r *rig) reconnect(q *pacer.QP, peer *verbs.QP) {
	r.t.Helper()
	require.NoError(r.t, q.Recover(func(qp *verbs.QP) error {
		require.NoError(r.t, peer.Quiesce())
		require.NoError(r.t, qp.Quiesce())
		require.NoError(r.t, qp.Init())
		require.NoError(r.t, peer.Init())
		r.connect(qp, peer)
		return nil
	}))
}

// Queue pairs that come and go with receives posted leave nothing behind, and a receive
// has its number whatever became of earlier ones.
func TestReceivesOfClosedQueuePairs(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	stays, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	for i := range 20 {
		q, peer := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
		recvs, err := q.NewRecvBatch(8)
		require.NoError(t, err)
		for k := range 8 {
			recvs.Recv(uint64(100*i+k), r.a.mr.SGE(100*k, 100))
		}
		_, err = recvs.Post()
		require.NoError(t, err)
		if i == 19 { // one is there, and was not polled
			b, err := peer.NewBatch(1)
			require.NoError(t, err)
			b.Send(1, verbs.Signaled, r.b.mr.SGE(0, 33))
			_, err = b.Post()
			require.NoError(t, err)
			require.EqualValues(t, 1900, one(t, stays).ID())
		}
		require.NoError(t, q.Close())
	}
	require.LessOrEqual(t, r.p.Receives(), 16)
}

// Calls that wait end when their queue pair is closed, whatever else waits for the same
// completion queue.
func TestCloseEndsCallsBesideWaiters(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	q, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	stays, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	r.p.Pause(true)
	called := make(chan error, 1)
	go func() { called <- q.Read(context.Background(), r.b.mr.Region().At(0), r.a.mr.SGE(0, 64)) }()
	time.Sleep(20 * time.Millisecond) // it polls for all
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := stays.Wait(ctx, make([]verbs.WC, 1))
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, q.Close())
	select {
	case err := <-called:
		require.ErrorIs(t, err, pacer.ErrClosed)
	case <-time.After(time.Minute):
		t.Error("the call waits for ever")
	}
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	r.p.Pause(false)
}

// Beside a program that polls the pacer polls less and less, and as often as before when
// that program stops.
func TestReapingBesideAProgramThatPolls(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 1})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	soon := r.p.ReapIn()
	for begin := time.Now(); r.p.ReapIn() < 8*soon; {
		require.Less(t, time.Since(begin), stuck)
		post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 1<<16))
		require.NoError(t, one(t, q).Err())
	}
	post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 1<<19))
	require.Eventually(t, func() bool { return r.p.ReapIn() == soon }, stuck, time.Millisecond)
	require.NoError(t, one(t, q).Err())
	r.idle()
}

// What holds others is looked after every 2 ms, though a budget has enough only much
// later.
func TestReapingBesideASlowBudget(t *testing.T) {
	r := newRig(t, pacer.Config{Threshold: 1, Outbound: 10, OutBurst: 1000})
	first, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	second, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	puts, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	b, err := puts.NewBatch(2)
	require.NoError(t, err)
	for i := range 2 {
		b.Add(verbs.WR{ID: uint64(i), Flags: verbs.Signaled, Op: verbs.WRWrite, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 900)}})
	}
	_, err = b.Post()
	require.NoError(t, err)
	post(t, first, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 4096)) // and the program does not poll for it
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, second.Read(ctx, r.b.mr.Region().At(0), r.a.mr.SGE(0, 4096)))
	require.NoError(t, puts.Close())
}

// All waiters learn of what is over, be they many.
func TestAllWaitersAreWoken(t *testing.T) {
	r := newRig(t, pacer.Config{})
	r.p.Pause(true)
	const many = 20
	errs := make(chan error, many)
	for range many {
		q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
		post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
		require.NoError(t, q.QP().Quiesce()) // the post fails
		go func() {
			_, err := q.Wait(within(t), make([]verbs.WC, 1))
			errs <- err
		}()
	}
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	r.p.Pause(false)
	for range many {
		require.NoError(t, <-errs)
	}
	require.Less(t, time.Since(start), stuck/3)
}

// A call that waits for room has it as soon as there is some, though the completions that made
// it were taken at once.
func TestAllRoomIsUsed(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{MaxSendWR: 16}, pacer.FlowConfig{})
	n := q.QP().MaxSendWR()
	r.p.Pause(true)
	for range n {
		post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
	}
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() {
			b, err := q.NewBatch(1)
			require.NoError(t, err)
			b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 64)}})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err = b.PostContext(ctx)
			errs <- err
		})
	}
	time.Sleep(20 * time.Millisecond)
	r.p.Pause(false)
	time.Sleep(50 * time.Millisecond)
	wcs := make([]verbs.WC, n)
	got := 0
	for got < n {
		k, err := q.Wait(within(t), wcs)
		require.NoError(t, err)
		got += k
	}
	for range 4 {
		require.NoError(t, <-errs)
	}
	wg.Wait()
	for got < n+4 {
		k, err := q.Wait(within(t), wcs)
		require.NoError(t, err)
		got += k
	}
}

// What completed before a queue pair was recovered did complete, however much it is.
func TestRecoveryKeepsWhatCompleted(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, peer := r.paced(r.cq(), verbs.QPConfig{MaxSendWR: 200}, pacer.FlowConfig{})
	const writes = 150
	b, err := q.NewBatch(writes)
	require.NoError(t, err)
	require.NoError(t, r.a.mr.Store64(0, 4711))
	require.NoError(t, r.a.mr.Store64(8, 0))
	for i := range writes {
		b.Add(verbs.WR{ID: uint64(i), Flags: verbs.Signaled, Op: verbs.WRWrite, Remote: r.b.mr.Region().At(uint64(8 * i)), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	}
	_, err = b.Post()
	require.NoError(t, err)
	post(t, q, writes, r.b.mr.Region().At(8*(writes-1)), r.a.mr.SGE(8, 8))
	require.Eventually(t, func() bool { // what the READ brings acknowledges all before it
		last, err := r.a.mr.Load64(8)
		return err == nil && last == 4711
	}, stuck, time.Millisecond)
	r.reconnect(q, peer) // the program has not polled
	var wcs [writes]verbs.WC
	for got := 0; got <= writes; {
		n, err := q.Wait(within(t), wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			if wc.ID() != writes { // which may have been about to complete
				require.NoError(t, wc.Err(), "%d", wc.ID())
			}
			got++
		}
	}
	r.idle()
}

// Nothing is taken for a queue that can no longer be polled.
func TestLostQueueRefuses(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	broken := errors.New("broken")
	q.Lose(broken)
	b, err := q.NewBatch(1)
	require.NoError(t, err)
	b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 64)}})
	n, err := b.Post()
	require.Zero(t, n)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 64)), broken)
	_, err = q.Wait(within(t), make([]verbs.WC, 1))
	require.ErrorIs(t, err, broken)
}

// When a call that a lost queue has ended returns, or is told as over, the device has its
// memory no more: its queue pair was reset.
func TestLostQueueReleasesMemory(t *testing.T) {
	r := newRig(t, pacer.Config{})
	r.retries = 7
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	require.NoError(t, peer.Quiesce())
	var left *verbs.InFlightError
	for timeout := 20 * time.Millisecond; left == nil; timeout *= 2 { // it may end before the READ is posted
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := q.Read(ctx, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		errors.As(err, &left)
	}
	require.NoError(t, left.Err())
	q.Lose(errors.New("broken"))
	<-left.Done()
	require.Error(t, left.Err())
	require.Equal(t, verbs.StateReset, q.QP().State())
	r.idle()
}

// A pacer may pace queue pairs of several devices, which number theirs on their own.
func TestTwoDevices(t *testing.T) {
	r := newRig(t, pacer.Config{})
	create := func(e end) *verbs.QP {
		cq, err := e.dev.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cq.Close()) })
		qp, err := e.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: e.gid})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		return qp
	}
	a, b := create(r.a), create(r.b)
	for range 100 {
		if a.Num() < b.Num() {
			a = create(r.a)
		} else if a.Num() > b.Num() {
			b = create(r.b)
		}
	}
	if a.Num() != b.Num() {
		t.Skipf("the devices do not use the same numbers: %#x, %#x", a.Num(), b.Num())
	}
	r.connect(a, b)
	qa, err := r.p.Wrap(a, a.SendCQ(), pacer.FlowConfig{})
	require.NoError(t, err)
	defer qa.Close()
	qb, err := r.p.Wrap(b, b.SendCQ(), pacer.FlowConfig{})
	require.NoError(t, err)
	defer qb.Close()
	require.NoError(t, qa.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 4096)))
	require.NoError(t, qb.Read(within(t), r.a.mr.Region().At(0), r.b.mr.SGE(8192, 4096)))
	r.idle()
}

// Hidden completions do not end a spin: there is one for the program, or time is up, or
// another goroutine polls, such as the one that looks after what is held.
func TestSpinSeesNoPieces(t *testing.T) {
	r := newRig(t, pacer.Config{MTU: 1024, Slice: 1024, Threshold: 1})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	spins := func() (vain int) {
		for range 20 {
			post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 8<<10))
			for n, err := 0, error(nil); n == 0; vain++ {
				n, err = q.PollSpin(make([]verbs.WC, 1), 1<<24)
				require.NoError(t, err)
			}
			vain--
		}
		return vain
	}
	least := spins()
	for tries := 1; tries < 20 && least >= 20; tries++ { // what takes a busy machine long is looked after all the time
		least = min(least, spins())
	}
	require.Less(t, least, 20, "of 160 pieces")
}

// Queue pairs that are closed while they are being wrapped: an error, or one that is
// closed.
func TestWrapBesideClose(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	peer := r.peer()
	for range 30 {
		qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
		require.NoError(t, err)
		eb, err := peer.Endpoint()
		require.NoError(t, err)
		require.NoError(t, qp.Connect(eb, verbs.ConnectConfig{}))
		closed := make(chan error, 1)
		go func() { closed <- qp.Close() }()
		q, err := r.p.Wrap(qp, cq, pacer.FlowConfig{})
		require.NoError(t, <-closed)
		if err == nil {
			require.NoError(t, q.Close())
		} else {
			require.ErrorIs(t, err, verbs.ErrClosed)
		}
	}
	require.NoError(t, r.p.Close())
}

// Several may wait for one queue, as they may for that of package verbs: one after the
// other they have what comes.
func TestWaitersTakeTurns(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	q, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	other, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	defer cancel()
	type waited struct {
		n   int
		err error
	}
	ended := make(chan waited, 3)
	for _, w := range []*pacer.QP{q, other, q} {
		go func() {
			n, err := w.Wait(ctx, make([]verbs.WC, 1))
			ended <- waited{n, err}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	_, err := q.Wait(short, make([]verbs.WC, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for range 2 {
		post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
	}
	for range 2 {
		w := <-ended
		require.NoError(t, w.err)
		require.Equal(t, 1, w.n)
	}
	require.NoError(t, q.Close())
	require.NoError(t, other.Close())
	require.ErrorIs(t, (<-ended).err, pacer.ErrClosed)
}

// A call that asks for what is not there has its error, and no other call.
func TestWrongCallHarmsNobody(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{MaxSendSGE: 1}, pacer.FlowConfig{})
	r.p.Pause(true)
	post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
	called := make(chan error, 1)
	go func() { called <- q.Read(within(t), r.b.mr.Region().At(memory), r.a.mr.SGE(0, 64)) }()
	var many []verbs.SGE
	for range q.QP().MaxSendSGE() + 1 {
		many = append(many, r.a.mr.SGE(0, 8))
	}
	toomany := make(chan error, 1)
	go func() { toomany <- q.Read(within(t), r.b.mr.Region().At(0), many...) }()
	time.Sleep(20 * time.Millisecond)
	r.p.Pause(false)
	require.ErrorIs(t, <-called, verbs.ErrRange)
	require.ErrorIs(t, <-toomany, verbs.ErrAttributes)
	require.NoError(t, one(t, q).Err())
	r.idle()
}
