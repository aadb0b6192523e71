//go:build linux && cgo

package verbs_test

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Sends and receives of several queue pairs are one crossing, and none waits for another.
func TestBatchesPostAllInOneCrossing(t *testing.T) {
	const pairs = 8
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	var list verbs.Batches
	var sends [pairs]*verbs.Batch
	var recvs [pairs]*verbs.RecvBatch
	for i := range pairs {
		_, qp, _ := newStandin(t)
		var err error
		sends[i], err = qp.NewBatch(4)
		require.NoError(t, err)
		recvs[i], err = qp.NewRecvBatch(4)
		require.NoError(t, err)
	}
	var err error
	post := func() {
		for i := range pairs {
			for range 1 + i%3 {
				sends[i].Send(1, 0, sge)
			}
			recvs[i].Recv(1, sge)
			list.AddRecv(recvs[i])
			list.Add(sends[i])
		}
		err = list.Post()
	}
	// The collector frees batches that earlier tests have dropped, each by a crossing, for
	// as long as it has some. A Post that crossed twice would never be counted as one.
	fewest := int64(1 << 62)
	for try := 0; fewest != 1 && try < 1000; try++ {
		before := runtime.NumCgoCall()
		post()
		fewest = min(fewest, runtime.NumCgoCall()-before)
		if try >= 20 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	require.EqualValues(t, 1, fewest)
	require.NoError(t, err)
	require.Zero(t, list.Len())
	require.Len(t, list.Results(), 2*pairs)
	for i := range pairs {
		require.Equal(t, verbs.Posted{N: 1}, list.Results()[2*i])
		require.Equal(t, verbs.Posted{N: 1 + i%3}, list.Results()[2*i+1])
		require.Zero(t, sends[i].Len())
		require.Zero(t, recvs[i].Len())
	}
	require.Zero(t, testing.AllocsPerRun(100, post))
	require.NoError(t, list.Post(), "of nothing")
	require.Empty(t, list.Results())
}

// A batch that fails, by the provider or before, says so by itself; the others go.
func TestBatchesFailOneByOne(t *testing.T) {
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	full, fullQP, _ := newStandin(t)
	_, fineQP, _ := newStandin(t)
	a, err := fullQP.NewBatch(4)
	require.NoError(t, err)
	r, err := fullQP.NewRecvBatch(4)
	require.NoError(t, err)
	wrong, err := fineQP.NewBatch(4)
	require.NoError(t, err)
	fine, err := fineQP.NewBatch(4)
	require.NoError(t, err)

	full.Fail(2, int(syscall.ENOMEM))
	for range 4 {
		a.Send(1, 0, sge)
		r.Recv(1, sge)
		fine.Send(1, 0, sge)
	}
	wrong.SendTo(1, 0, verbs.Destination{}, sge)
	var list verbs.Batches
	list.Add(a)
	list.AddRecv(r)
	list.Add(wrong)
	list.Add(fine)
	list.Add(fine) // is posted once
	list.AddRecv(r)
	err = list.Post()
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	got := list.Results()
	require.Len(t, got, 6)
	for _, p := range got[:2] {
		require.Equal(t, 2, p.N)
		require.ErrorIs(t, p.Err, verbs.ErrQueueFull)
		require.ErrorIs(t, p.Err, syscall.ENOMEM)
	}
	require.Zero(t, got[2].N)
	require.ErrorIs(t, got[2].Err, verbs.ErrAttributes)
	require.Equal(t, verbs.Posted{N: 4}, got[3])
	require.Equal(t, []verbs.Posted{{}, {}}, got[4:])

	full.Fail(-1, 0)
	for _, b := range []*verbs.Batch{a, wrong, fine} {
		b.Send(1, 0, sge)
		list.Add(b)
	}
	r.Recv(1, sge)
	list.AddRecv(r)
	require.NoError(t, list.Post(), "all are usable again")
	for _, p := range list.Results() {
		require.Equal(t, 1, p.N)
	}
}

// Shared queues are posted to as others are, and what is closed is refused by itself.
func TestBatchesOfSharedAndClosedQueues(t *testing.T) {
	s := rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
	srq, err := s.PD.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	shared, err := srq.NewRecvBatch(4)
	require.NoError(t, err)
	closing, err := s.PD.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	closed, err := closing.NewRecvBatch(4)
	require.NoError(t, err)
	require.NoError(t, closing.Close())
	var list verbs.Batches
	for range 2 {
		shared.Recv(1, s.MR.SGE(0, 8))
		closed.Recv(1, s.MR.SGE(0, 8))
	}
	list.AddRecv(closed)
	list.AddRecv(shared)
	require.ErrorIs(t, list.Post(), verbs.ErrClosed)
	require.ErrorIs(t, list.Results()[0].Err, verbs.ErrClosed)
	require.Equal(t, verbs.Posted{N: 2}, list.Results()[1])
	require.NoError(t, srq.Close(), "nothing holds it")
}

// A batch that fails and is in the list twice fails once, as by its own Post: that drops what
// was in it.
func TestBatchThatFailsIsEmpty(t *testing.T) {
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	_, qp, _ := newStandin(t)
	b, err := qp.NewBatch(4)
	require.NoError(t, err)
	r, err := qp.NewRecvBatch(4)
	require.NoError(t, err)
	b.SendTo(1, 0, verbs.Destination{}, sge)
	for range 5 {
		r.Recv(1, sge)
	}
	var list verbs.Batches
	for range 2 {
		list.Add(b)
		list.AddRecv(r)
	}
	err = list.Post()
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.ErrorIs(t, err, verbs.ErrBatchFull)
	got := list.Results()
	require.ErrorIs(t, got[0].Err, verbs.ErrAttributes)
	require.ErrorIs(t, got[1].Err, verbs.ErrBatchFull)
	require.Equal(t, []verbs.Posted{{}, {}}, got[2:])
}

// A queue pair that posts all of a batch or nothing does so in a list, too.
func TestBatchesOfAllOrNothing(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{Extended: true}, verbs.CQConfig{}, verbs.ConnectConfig{})
	n := a.QP.MaxSendWR()
	first, second := a.Batch(t, n), a.Batch(t, 2)
	for i := range n - 1 { // so that one has room
		first.Send(uint64(i), 0, a.MR.SGE(0, 8))
	}
	second.Send(1, 0, a.MR.SGE(0, 8))
	second.Send(2, 0, a.MR.SGE(0, 8))
	var list verbs.Batches
	list.Add(first)
	list.Add(second)
	require.ErrorIs(t, list.Post(), verbs.ErrQueueFull)
	require.Equal(t, verbs.Posted{N: n - 1}, list.Results()[0])
	require.Zero(t, list.Results()[1].N)
	require.ErrorIs(t, list.Results()[1].Err, verbs.ErrQueueFull)
}

// No batch at all is an error of that one alone.
func TestBatchesOfNone(t *testing.T) {
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	_, qp, _ := newStandin(t)
	b, err := qp.NewBatch(4)
	require.NoError(t, err)
	b.Send(1, 0, sge)
	var list verbs.Batches
	list.Add(b)
	list.Add(nil)
	list.AddRecv(nil)
	require.ErrorIs(t, list.Post(), verbs.ErrAttributes)
	got := list.Results()
	require.Equal(t, verbs.Posted{N: 1}, got[0])
	require.ErrorIs(t, got[1].Err, verbs.ErrAttributes)
	require.ErrorIs(t, got[2].Err, verbs.ErrAttributes)
}

// A list holds open what its batches need while it is posted, and no longer: objects that
// are closed before are refused, those that are closed meanwhile or later wait for no more than
// that.
func TestBatchesBesideClose(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	to := rig.Dest(t, a, b)
	newAH := func() *verbs.AH {
		at := b.QP.GID()
		ah, err := a.PD.CreateAH(verbs.AHAttr{GID: at.GID, SGIDIndex: a.QP.GID().Index, Port: a.QP.GID().Port})
		require.NoError(t, err)
		return ah
	}
	gone := newAH()
	require.NoError(t, gone.Close())
	batches := [3]*verbs.Batch{a.Batch(t, 1), a.Batch(t, 1), a.Batch(t, 1)}
	recv, err := a.QP.NewRecvBatch(1)
	require.NoError(t, err)
	var list verbs.Batches
	for i, ah := range []*verbs.AH{to.AH, gone, to.AH} {
		batches[i].SendTo(uint64(i), verbs.Signaled, verbs.Destination{AH: ah, QPN: to.QPN, QKey: to.QKey}, a.MR.SGE(0, 8))
		list.Add(batches[i])
	}
	recv.Recv(9, a.MR.SGE(100, 100))
	list.AddRecv(recv)
	require.ErrorIs(t, list.Post(), verbs.ErrClosed)
	got := list.Results()
	require.Equal(t, []verbs.Posted{{N: 1}, {N: 1}, {N: 1}}, []verbs.Posted{got[0], got[2], got[3]})
	require.ErrorIs(t, got[1].Err, verbs.ErrClosed)
	for _, wc := range a.Wait(t, 2) {
		require.NoError(t, wc.Err())
	}

	// Goroutines with lists of their own, for one queue pair, while what they send by is closed.
	late := newAH()
	var posting sync.WaitGroup
	for range 2 {
		send := a.Batch(t, 1)
		var list verbs.Batches
		posting.Go(func() {
			for {
				send.SendTo(5, 0, verbs.Destination{AH: late, QPN: to.QPN, QKey: to.QKey}, a.MR.SGE(0, 8))
				list.Add(send)
				switch err := list.Post(); {
				case err == nil:
				case errors.Is(err, verbs.ErrQueueFull): // no goroutine polls
					runtime.Gosched()
				case errors.Is(err, verbs.ErrClosed):
					return
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	require.NoError(t, late.Close())
	posting.Wait()
	require.NoError(t, a.QP.Close())
	require.NoError(t, to.AH.Close())
}
