//go:build linux

package pacer_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// READs of all sizes, cut into any number of pieces, complete once, under their
// numbers, with what the peer's memory has: nothing, less than the threshold, more.
func TestReadsOfAllSizes(t *testing.T) {
	for _, c := range []pacer.Config{{}, {MTU: 1024, Slice: 1024, Threshold: 3000}, {Slice: -1, Threshold: 1}, {Slice: 4096, Threshold: 20000, Policy: pacer.Deficit, Units: 1}, {Tune: true}} {
		t.Run(fmt.Sprintf("slice %d, threshold %d, tuned %v", c.Slice, c.Threshold, c.Tune), func(t *testing.T) {
			r := newRig(t, c)
			cq := r.cq()
			q, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
			b, err := q.NewBatch(16)
			require.NoError(t, err)
			sizes := []int{0, 1, 64, 1023, 4096, 4097, 16384, 50000, 100000}
			clear(r.a.mr.Bytes())
			at := 0
			for i, n := range sizes {
				b.Add(verbs.WR{ID: uint64(1000 + i), Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(uint64(at)), Local: []verbs.SGE{r.a.mr.SGE(at, n)}})
				at += n
			}
			n, err := b.Post()
			require.NoError(t, err)
			require.Equal(t, len(sizes), n)
			var wcs [4]verbs.WC
			for i := 0; i < len(sizes); {
				n, err := q.Wait(within(t), wcs[:])
				require.NoError(t, err)
				for _, wc := range wcs[:n] {
					require.NoError(t, wc.Err())
					require.Equal(t, uint64(1000+i), wc.ID())
					require.Equal(t, sizes[i], wc.Len())
					require.Equal(t, verbs.WCRead, wc.Opcode())
					require.Equal(t, q.QP().Num(), wc.QPNum())
					i++
				}
			}
			require.True(t, bytes.Equal(r.b.mr.Bytes()[:at], r.a.mr.Bytes()[:at]))
			require.Zero(t, r.a.mr.Bytes()[at])
			r.idle()
		})
	}
}

// Scattered READs are cut anywhere.
func TestScatteredReads(t *testing.T) {
	r := newRig(t, pacer.Config{MTU: 1024, Slice: 2048})
	q, _ := r.paced(r.cq(), verbs.QPConfig{MaxSendSGE: 4}, pacer.FlowConfig{})
	clear(r.a.mr.Bytes())
	require.NoError(t, q.Read(within(t), r.b.mr.Region().At(5), r.a.mr.SGE(0, 700), r.a.mr.SGE(1000, 0), r.a.mr.SGE(1000, 5000), r.a.mr.SGE(9000, 3333)))
	got, want := r.a.mr.Bytes(), r.b.mr.Bytes()[5:]
	require.True(t, bytes.Equal(want[:700], got[:700]))
	require.True(t, bytes.Equal(want[700:5700], got[1000:6000]))
	require.True(t, bytes.Equal(want[5700:9033], got[9000:12333]))
	require.Equal(t, make([]byte, 300), got[700:1000])
	r.idle()
}

// All other requests go through, and unsignaled ones say nothing.
func TestOtherRequests(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 5000})
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	recvs, err := peer.NewRecvBatch(4)
	require.NoError(t, err)
	for i := range 4 {
		recvs.Recv(uint64(i), r.b.mr.SGE(200000+100*i, 100))
	}
	_, err = recvs.Post()
	require.NoError(t, err)
	b, err := q.NewBatch(16)
	require.NoError(t, err)
	at := r.b.mr.Region()
	b.Add(verbs.WR{ID: 1, Op: verbs.WRRead, Remote: at.At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 64<<10)}})
	b.Add(verbs.WR{ID: 2, Op: verbs.WRWrite, Remote: at.At(300000), Local: []verbs.SGE{r.a.mr.SGE(0, 10)}})
	b.Add(verbs.WR{ID: 3, Op: verbs.WRWriteImm, Imm: 7, Remote: at.At(300100), Local: []verbs.SGE{r.a.mr.SGE(0, 10)}})
	b.Add(verbs.WR{ID: 4, Op: verbs.WRWrite, Remote: at.At(300200), Data: []byte("inline")})
	b.Add(verbs.WR{ID: 5, Flags: verbs.Signaled, Op: verbs.WRSend, Local: []verbs.SGE{r.a.mr.SGE(0, 10)}})
	b.Add(verbs.WR{ID: 6, Op: verbs.WRSendImm, Imm: 9, Local: []verbs.SGE{r.a.mr.SGE(0, 10)}})
	b.Add(verbs.WR{ID: 7, Op: verbs.WRSend, Data: []byte("hello")})
	b.Add(verbs.WR{ID: 8, Op: verbs.WRFetchAdd, Remote: at.At(400000), Value: 5, Local: []verbs.SGE{r.a.mr.SGE(500000, 8)}})
	b.Add(verbs.WR{ID: 9, Op: verbs.WRCmpSwap, Remote: at.At(400008), Compare: verbs.Uint64(r.b.mr.Bytes(), 400008), Value: 77, Local: []verbs.SGE{r.a.mr.SGE(500008, 8)}})
	before := verbs.Uint64(r.b.mr.Bytes(), 400000)
	b.Add(verbs.WR{ID: 10, Flags: verbs.Signaled, Op: verbs.WRWrite, Remote: at.At(300300), Local: []verbs.SGE{r.a.mr.SGE(0, 10)}})
	n, err := b.Post()
	require.NoError(t, err)
	require.Equal(t, 10, n)
	var wcs [16]verbs.WC
	var ids []uint64
	for len(ids) < 2 {
		n, err := q.Wait(within(t), wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			require.NoError(t, wc.Err())
			ids = append(ids, wc.ID())
		}
	}
	require.Equal(t, []uint64{5, 10}, ids)
	require.True(t, bytes.Equal(r.b.mr.Bytes()[:64<<10], r.a.mr.Bytes()[:64<<10]), "a completion says that what was before it is over")
	require.Equal(t, []byte("inline"), r.b.mr.Bytes()[300200:300206])
	require.Equal(t, before, verbs.Uint64(r.a.mr.Bytes(), 500000))
	require.Equal(t, before+5, verbs.Uint64(r.b.mr.Bytes(), 400000))
	require.EqualValues(t, 77, verbs.Uint64(r.b.mr.Bytes(), 400008))
	r.idle()
}

// What is inline is sent as it was when Post returned, however long it is held, and
// wherever it lies.
func TestInlineIsCopiedByPost(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, peer := r.paced(r.cq(), verbs.QPConfig{MaxInline: 16, MaxSendSGE: 2}, pacer.FlowConfig{})
	recvs, err := peer.NewRecvBatch(5)
	require.NoError(t, err)
	for i := range 5 {
		recvs.Recv(uint64(i), r.b.mr.SGE(200000+100*i, 100))
	}
	_, err = recvs.Post()
	require.NoError(t, err)
	b, err := q.NewBatch(8)
	require.NoError(t, err)
	local, far := r.a.mr.Bytes(), r.b.mr.Bytes()
	for _, held := range []bool{false, true} {
		r.p.Pause(held)
		copy(local, "abcdefghijkl")
		at := r.b.mr.Region()
		clear(far[300000:300040])
		b.Add(verbs.WR{ID: 1, Flags: verbs.Inline, Op: verbs.WRWrite, Remote: at.At(300000), Local: []verbs.SGE{r.a.mr.SGE(0, 4), r.a.mr.SGE(6, 4)}})
		if held {
			b.Add(verbs.WR{ID: 2, Flags: verbs.Inline, Op: verbs.WRWriteImm, Imm: 7, Remote: at.At(300010), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
			b.Add(verbs.WR{ID: 3, Flags: verbs.Inline, Op: verbs.WRSend, Local: []verbs.SGE{r.a.mr.SGE(2, 5)}})
			b.Add(verbs.WR{ID: 4, Flags: verbs.Inline, Op: verbs.WRSendImm, Imm: 9, Local: []verbs.SGE{r.a.mr.SGE(4, 0), r.a.mr.SGE(4, 8)}})
			b.Add(verbs.WR{ID: 5, Flags: verbs.Inline, Op: verbs.WRWrite, Remote: at.At(300020), Data: local[8:12]})
			b.Add(verbs.WR{ID: 6, Op: verbs.WRWriteImm, Imm: 11, Remote: at.At(300024), Data: local[:4]})
			b.Add(verbs.WR{ID: 7, Op: verbs.WRSendImm, Imm: 13, Data: local[4:8]})
			b.Add(verbs.WR{ID: 4, Flags: verbs.Inline | verbs.Signaled, Op: verbs.WRWrite, Remote: at.At(300030), Local: []verbs.SGE{r.a.mr.SGE(0, 4)}})
		} else {
			b.Add(verbs.WR{ID: 4, Flags: verbs.Inline | verbs.Signaled, Op: verbs.WRWrite, Remote: at.At(300010), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
		}
		_, err := b.Post()
		require.NoError(t, err)
		copy(local, "0123456789abc")
		r.p.Pause(false)
		var wcs [1]verbs.WC
		n, err := q.Wait(within(t), wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, wcs[0].Err())
		require.EqualValues(t, 4, wcs[0].ID())
		require.Equal(t, "abcdghij", string(far[300000:300008]))
		require.Equal(t, "abcdefgh", string(far[300010:300018]))
	}
	require.Equal(t, "cdefg", string(far[200100:200105]))
	require.Equal(t, "efghijkl", string(far[200200:200208]))
	require.Equal(t, "ijklabcd", string(far[300020:300028]))
	require.Equal(t, "efgh", string(far[200400:200404]))
	require.Equal(t, "abcd", string(far[300030:300034]))
	var got []verbs.WC
	for len(got) < 5 {
		var wcs [5]verbs.WC
		n, err := peer.RecvCQ().Wait(within(t), wcs[:])
		require.NoError(t, err)
		got = append(got, wcs[:n]...)
	}
	for i, imm := range []uint32{7, 0, 9, 11, 13} {
		v, ok := got[i].Imm()
		require.Equal(t, imm != 0, ok)
		require.Equal(t, imm, v)
	}
	r.idle()
}

// Receives keep their numbers too.
func TestReceives(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	recvs, err := q.NewRecvBatch(4)
	require.NoError(t, err)
	recvs.Recv(1<<63|5, r.a.mr.SGE(0, 100))
	recvs.Recv(6, r.a.mr.SGE(100, 100))
	_, err = recvs.Post()
	require.NoError(t, err)
	b, err := peer.NewBatch(2)
	require.NoError(t, err)
	b.SendImm(1, verbs.Signaled, 42, r.b.mr.SGE(0, 33))
	b.Send(2, verbs.Signaled, r.b.mr.SGE(0, 44))
	_, err = b.Post()
	require.NoError(t, err)
	var got []verbs.WC
	var wcs [4]verbs.WC
	for len(got) < 2 {
		n, err := q.Wait(within(t), wcs[:])
		require.NoError(t, err)
		got = append(got, wcs[:n]...)
	}
	imm, ok := got[0].Imm()
	require.True(t, ok)
	require.EqualValues(t, 42, imm)
	require.EqualValues(t, uint64(1<<63|5), got[0].ID())
	require.Equal(t, 33, got[0].Len())
	require.EqualValues(t, 6, got[1].ID())
	require.Equal(t, 44, got[1].Len())
}

// What is wrong with a request is said by Post, which takes none of the batch, and a
// full queue is one.
func TestRefusals(t *testing.T) {
	r := newRig(t, pacer.Config{Threshold: 1})
	cq := r.cq()
	q, _ := r.paced(cq, verbs.QPConfig{MaxSendWR: 16}, pacer.FlowConfig{})
	b, err := q.NewBatch(4)
	require.NoError(t, err)
	b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(memory), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	n, err := b.Post()
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrRange)
	for range 5 {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	}
	_, err = b.Post()
	require.ErrorIs(t, err, verbs.ErrBatchFull)
	r.p.Pause(true)
	posted := 0
	for err = nil; err == nil; posted += n {
		b.Add(verbs.WR{ID: uint64(posted), Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
		n, err = b.Post()
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, q.QP().MaxSendWR(), posted)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	b.Add(verbs.WR{ID: 99, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	_, err = b.PostContext(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	r.p.Pause(false)
	_, err = cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrInUse, "past the pacer")
	var wcs [4]verbs.WC
	for done := 0; done < posted; done += n {
		n, err = q.Wait(within(t), wcs[:])
		require.NoError(t, err)
	}
	_, err = r.p.Wrap(q.QP(), cq, pacer.FlowConfig{})
	require.Error(t, err)
	_, err = r.p.Wrap(q.QP(), nil, pacer.FlowConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.ErrorIs(t, r.p.Close(), verbs.ErrInUse)
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	_, err = b.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorIs(t, q.Read(t.Context(), r.b.mr.Region().At(0), r.a.mr.SGE(0, 8)), verbs.ErrClosed)
}

// A queue pair that fails while it holds all credit gives it back, and others go on.
func TestFailingQueuePair(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 20000})
	cq := r.cq()
	bad, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	good, _ := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{})
	b, err := bad.NewBatch(8)
	require.NoError(t, err)
	wrong := r.b.mr.Region().At(0)
	wrong.RKey ^= 0x5500
	for i := range 8 {
		b.Add(verbs.WR{ID: uint64(i), Op: verbs.WRRead, Remote: wrong, Local: []verbs.SGE{r.a.mr.SGE(0, 100000)}}) // not signaled: failures are told all the same
	}
	_, err = b.Post()
	require.NoError(t, err)
	require.NoError(t, good.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(200000, 300000)))
	var wcs [8]verbs.WC
	var status []verbs.WCStatus
	for len(status) < 8 {
		n, err := bad.Wait(within(t), wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			require.EqualValues(t, len(status), wc.ID())
			status = append(status, wc.Status())
		}
	}
	require.Equal(t, verbs.WCRemoteAccess, status[0])
	for _, s := range status[1:] {
		require.Equal(t, verbs.WCFlushed, s)
	}
	r.idle()
}

// Only the pieces that failed are read again on a queue pair that was connected anew.
func TestRecovery(t *testing.T) {
	c := pacer.Config{Slice: 4096, Threshold: 30000, Rate: 1, Burst: 110000} // for some 25 pieces, and then no more
	r := newRig(t, c)
	cq := r.cq()
	q, peer := r.paced(cq, verbs.QPConfig{}, pacer.FlowConfig{Reissue: true})
	clear(r.a.mr.Bytes())
	const size = 600000
	done := make(chan error, 1)
	go func() { done <- q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, size)) }()
	require.Eventually(t, func() bool { return r.p.Stats().Granted > 20 }, stuck, time.Millisecond)
	require.NoError(t, q.QP().ToError())
	c.Rate = 6e6 // which is 100 ms for the rest
	require.NoError(t, r.p.Reconfigure(c))
	require.Eventually(t, func() bool { return r.p.Stats().Failed > 0 }, stuck, time.Millisecond)
	before := r.p.Stats()
	require.NoError(t, q.Recover(func(qp *verbs.QP) error {
		require.NoError(t, qp.ToReset())
		require.NoError(t, peer.Quiesce())
		require.NoError(t, qp.Init())
		require.NoError(t, peer.Init())
		r.connect(qp, peer)
		return nil
	}))
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(r.b.mr.Bytes()[:size], r.a.mr.Bytes()[:size]))
	st := r.p.Stats()
	t.Logf("%d pieces failed, %d were issued again, of %d", st.Failed, st.Reissued, st.Granted)
	require.Positive(t, st.Reissued)
	require.Equal(t, st.Failed, st.Reissued)
	require.LessOrEqual(t, st.Failed, uint64(30))
	require.GreaterOrEqual(t, st.Failed, before.Failed)
	r.idle()
}

// A context that ends takes what was not posted back, and the rest is waited for.
func TestCancelledContexts(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 9000})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
			defer cancel()
			err := q.Read(ctx, r.b.mr.Region().At(0), r.a.mr.SGE(i*100000, 100000))
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
	wg.Wait()
	r.idle()
	require.NoError(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 50000)))
	c, err := r.p.Acquire(t.Context(), 0, 9000)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = r.p.Acquire(ctx, 0, 9000)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Release()
	c.Release()
	r.idle()
}

// A link that changes its rate, and stands still: everything comes in the end.
func TestLinkThatStalls(t *testing.T) {
	lab.RequireTopology(t, "wire")
	r := newRig(t, pacer.Config{Tune: true})
	r.retries = 7 // of Soft-RoCE: without end
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	require.NoError(t, lab.LimitIngress("h0", 80e6))
	t.Cleanup(func() { require.NoError(t, lab.UnlimitIngress("h0")) })
	done := make(chan error, 1)
	go func() { done <- q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, memory)) }()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, lab.Impair("h1", lab.Impairment{Loss: 1}))
	stall := 300 * time.Millisecond
	if !testing.Short() {
		stall = 3 * time.Second
	}
	time.Sleep(stall)
	require.NoError(t, lab.Clear("h1"))
	require.NoError(t, lab.LimitIngress("h0", 40e6))
	require.NoError(t, <-done)
	require.True(t, bytes.Equal(r.b.mr.Bytes(), r.a.mr.Bytes()))
	r.idle()
}

// Goroutines, queue pairs that come and go, limits that change: all is read right.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 30000})
	end := time.Now().Add(1500 * time.Millisecond)
	var wg sync.WaitGroup
	for g := range 4 {
		q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{Weight: g})
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				n, from, to := (i*7919)%70000, (i*131)%100000, g*200000
				require.NoError(t, q.Read(within(t), r.b.mr.Region().At(uint64(from)), r.a.mr.SGE(to, n)))
				require.True(t, bytes.Equal(r.b.mr.Bytes()[from:from+n], r.a.mr.Bytes()[to:to+n]))
			}
		})
	}
	for i := 0; time.Now().Before(end); i++ {
		c := pacer.Config{Slice: 1024 << (i % 4), Threshold: int64(5000 << (i % 5)), Policy: pacer.Policy(i % 3), Units: 1 + i%4}
		if i%3 == 0 {
			c.Rate, c.Burst = 20e6, 30000
		}
		require.NoError(t, r.p.Reconfigure(c))
		time.Sleep(20 * time.Millisecond)
	}
	wg.Wait()
	r.idle()
}

// The warm path does not allocate: post, complete, poll.
func TestWarmPathDoesNotAllocate(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	var wcs [4]verbs.WC
	from, into, small := r.b.mr.Region().At(0), r.a.mr.SGE(0, 64<<10), r.a.mr.SGE(70000, 64)
	turn := func() {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: from, Local: []verbs.SGE{into}})
		b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: from, Local: []verbs.SGE{small}})
		b.Post()
		for got := 0; got < 2; {
			n, _ := q.PollSpin(wcs[:], 100)
			got += n
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(30, turn))
}

// One call paces a queue pair, by the pacer that its device has.
func TestWrapByDevice(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
	require.NoError(t, err)
	defer qp.Close()
	_, err = pacer.Wrap(qp, cq)
	require.ErrorIs(t, err, verbs.ErrState)
	r.connect(qp, r.peer())
	q, err := pacer.Wrap(qp, cq)
	require.NoError(t, err)
	p, err := pacer.ForDevice(r.a.dev)
	require.NoError(t, err)
	twice, err := verbs.Open(r.a.dev.Name(), verbs.DeviceConfig{})
	require.NoError(t, err)
	same, err := pacer.ForDevice(twice)
	require.NoError(t, err)
	require.Same(t, p, same, "it is one interface, however often it is opened")
	require.NoError(t, twice.Close())
	require.NoError(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 100000)))
	require.Equal(t, 4096, p.Config().MTU)
	require.False(t, p.Config().Tune)
	require.NoError(t, q.Close())
	require.NoError(t, p.Close())
	again, err := pacer.ForDevice(r.a.dev)
	require.NoError(t, err)
	require.NotSame(t, p, again)
	require.NoError(t, again.Close())
}
