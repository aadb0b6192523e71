//go:build linux && cgo

package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

const standinWR = 128

func newStandin(t testing.TB) (*standin.Pair, *verbs.QP, *verbs.CQ) {
	t.Helper()
	s, err := standin.New()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	qp, cq := driver.Wrap(s.QP(), s.CQ(), standinWR)
	return s, qp, cq
}

// postPoll is one turn of the loop that standin.PostPollLoop has in C.
func postPoll(b *verbs.Batch, cq *verbs.CQ, wcs []verbs.WC) error {
	for i := range wcs {
		n := uint64(i)
		b.Write(n, verbs.Signaled, verbs.Remote{Addr: 0x2000 + 64*n, RKey: 9}, verbs.SGE{Addr: 0x1000 + 64*n, Length: 64, LKey: 7})
	}
	if _, err := b.Post(); err != nil {
		return err
	}
	n, err := cq.Poll(wcs)
	if err != nil {
		return err
	}
	for i := range wcs[:n] {
		if wcs[i].Status() != verbs.WCSuccess {
			return wcs[i].Err()
		}
	}
	return nil
}

func benchmarkPostPoll(b *testing.B, size int) {
	s, qp, cq := newStandin(b)
	batch, err := qp.NewBatch(size)
	require.NoError(b, err)
	wcs := make([]verbs.WC, size)
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		if err := postPoll(batch, cq, wcs); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	perWR := float64(b.Elapsed().Nanoseconds()) / float64(rounds*size)
	c := float64(s.PostPollLoop(rounds, size).Nanoseconds()) / float64(rounds*size)
	b.ReportMetric(perWR-c, "over-C-ns/WR")
}

// One crossing instead of two.
func BenchmarkFusedPostPoll(b *testing.B) {
	_, qp, cq := newStandin(b)
	batch, err := qp.NewBatch(1)
	require.NoError(b, err)
	var wcs [1]verbs.WC
	b.ReportAllocs()
	for b.Loop() {
		batch.Write(1, verbs.Signaled, verbs.Remote{Addr: 0x2000, RKey: 9}, verbs.SGE{Addr: 0x1000, Length: 64, LKey: 7})
		if _, _, err := batch.PostPoll(cq, wcs[:], 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPostPoll1(b *testing.B)  { benchmarkPostPoll(b, 1) }
func BenchmarkPostPoll64(b *testing.B) { benchmarkPostPoll(b, 64) }

func TestDataPathDoesNotAllocate(t *testing.T) {
	_, qp, cq := newStandin(t)
	batch, err := qp.NewBatch(16)
	require.NoError(t, err)
	recv, err := qp.NewRecvBatch(16)
	require.NoError(t, err)
	wcs := make([]verbs.WC, 16)
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	at := verbs.Remote{Addr: 0x2000, RKey: 9}
	data := []byte("inline")

	for name, f := range map[string]func(){
		"Send":        func() { batch.Send(1, verbs.Signaled, sge, sge) },
		"SendImm":     func() { batch.SendImm(1, 0, 7, sge) },
		"Write":       func() { batch.Write(1, 0, at, sge, sge) },
		"WriteImm":    func() { batch.WriteImm(1, 0, 7, at, sge) },
		"Read":        func() { batch.Read(1, 0, at, sge, sge) },
		"FetchAdd":    func() { batch.FetchAdd(1, 0, at, 1, sge) },
		"CmpSwap":     func() { batch.CmpSwap(1, 0, at, 1, 2, sge) },
		"SendInline":  func() { batch.SendInline(1, 0, data) },
		"WriteInline": func() { batch.WriteInline(1, 0, at, data) },
		"Add READ":    func() { batch.Add(verbs.ReadWR(at, sge, sge)) },
		"Add SEND":    func() { batch.Add(verbs.SendImmWR(7, sge)) },
		"Add inline":  func() { batch.Add(verbs.WR{Op: verbs.WRWriteImm, Imm: 7, Remote: at, Data: data}) },
		"Add atomic":  func() { batch.Add(verbs.WR{Op: verbs.WRCmpSwap, Remote: at, Compare: 1, Local: []verbs.SGE{sge}}) },
		"Check":       func() { err = batch.Check(verbs.WR{Op: verbs.WRWrite, Remote: at, Data: data}) },
		"PostPoll": func() {
			batch.Read(1, verbs.Signaled, at, sge)
			_, _, err = batch.PostPoll(cq, wcs, 4)
		},
		"Recv": func() {
			recv.Recv(1, sge, sge)
			_, err = recv.Post()
		},
		"Poll":     func() { _, err = cq.Poll(wcs) },
		"PollSpin": func() { _, err = cq.PollSpin(wcs, 8) },
	} {
		allocs := testing.AllocsPerRun(100, func() {
			f()
			if err == nil && batch.Len() > 0 {
				_, err = batch.Post()
			}
		})
		require.NoError(t, err, name)
		require.Zero(t, allocs, name)
	}
}

func TestPartialPost(t *testing.T) {
	s, qp, _ := newStandin(t)
	batch, err := qp.NewBatch(4)
	require.NoError(t, err)
	recv, err := qp.NewRecvBatch(4)
	require.NoError(t, err)
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}

	s.Fail(2, int(syscall.ENOMEM))
	for range 4 {
		batch.Send(1, 0, sge)
		recv.Recv(1, sge)
	}
	n, err := batch.Post()
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Zero(t, batch.Len(), "a failed post empties the batch")
	n, err = recv.Post()
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)

	// erdma returns negative errnos.
	s.Fail(1, -int(syscall.ENOMEM))
	batch.Send(1, 0, sge)
	batch.Send(2, 0, sge)
	n, err = batch.Post()
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	recv.Recv(1, sge)
	recv.Recv(2, sge)
	n, err = recv.Post()
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)

	// A shorter chain must not drag the rest of the memory along.
	s.Fail(1, int(syscall.EINVAL))
	batch.Send(1, 0, sge)
	n, err = batch.Post()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s.Fail(3, int(syscall.EINVAL))
	for range 4 {
		batch.Send(1, 0, sge)
	}
	n, err = batch.Post()
	require.Equal(t, 3, n, "the chain is whole again after a short post")
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// TestPollErrors: mlx5, mlx4 and hns return -1 or -2 for what they cannot read,
// which are no errnos; EFA returns -EINVAL.
func TestPollErrors(t *testing.T) {
	s, _, cq := newStandin(t)
	wcs := make([]verbs.WC, 4)
	for status, want := range map[int]syscall.Errno{-1: syscall.EIO, -2: syscall.EIO, -int(syscall.EINVAL): syscall.EINVAL} {
		s.FailPolls(status)
		n, err := cq.Poll(wcs)
		require.Zero(t, n)
		require.ErrorIs(t, err, want, "%d", status)
	}
	s.FailPolls(0)
	n, err := cq.Poll(wcs)
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

func TestBatchReportsAtPost(t *testing.T) {
	_, qp, _ := newStandin(t)
	sge := verbs.SGE{Addr: 0x1000, Length: 8, LKey: 7}
	at := verbs.Remote{Addr: 0x2000, RKey: 9}
	for _, c := range []struct {
		name string
		add  func(*verbs.Batch)
		want error
	}{
		{"too many", func(b *verbs.Batch) { b.Send(1, 0, sge); b.Send(2, 0, sge); b.Send(3, 0, sge) }, verbs.ErrBatchFull},
		{"too many entries", func(b *verbs.Batch) { b.Send(1, 0, sge, sge, sge) }, verbs.ErrAttributes},
		{"bad local range", func(b *verbs.Batch) { b.Send(1, 0, verbs.SGE{Length: 0xffffffff}) }, verbs.ErrRange},
		{"bad remote offset", func(b *verbs.Batch) { b.Read(1, 0, verbs.Region{Length: 8}.At(8), sge) }, verbs.ErrRange},
		{"misaligned atomic", func(b *verbs.Batch) { b.FetchAdd(1, 0, verbs.Remote{Addr: 4}, 1, sge) }, verbs.ErrRange},
		{"short atomic result", func(b *verbs.Batch) { b.CmpSwap(1, 0, at, 1, 2, verbs.SGE{Length: 4}) }, verbs.ErrRange},
		{"atomic outside", func(b *verbs.Batch) { b.CmpSwap(1, 0, verbs.Region{}.At(0), 1, 2, sge) }, verbs.ErrRange},
		{"no address handle", func(b *verbs.Batch) { b.SendTo(1, 0, verbs.Destination{}, sge) }, verbs.ErrAttributes},
		{"inline too long, gathered", func(b *verbs.Batch) {
			b.Send(1, verbs.Inline, verbs.SGE{Addr: 1, Length: 60}, verbs.SGE{Addr: 1, Length: 5})
		}, verbs.ErrAttributes},
		{"inline too long", func(b *verbs.Batch) { b.SendInline(1, 0, make([]byte, 65)) }, verbs.ErrAttributes},
	} {
		b, err := qp.NewBatch(2)
		require.NoError(t, err)
		c.add(b)
		n, err := b.Post()
		require.ErrorIs(t, err, c.want, c.name)
		require.Zero(t, n, c.name)
		b.Send(1, 0, sge)
		_, err = b.Post()
		require.NoError(t, err, "%s: the batch is usable again", c.name)
	}
	_, err := qp.NewBatch(0)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = qp.NewBatch(standinWR + 1)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	var op *verbs.OpError
	require.True(t, errors.As(err, &op))
	require.Equal(t, "wrapped qp", op.Object)
}
