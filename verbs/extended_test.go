//go:build linux

package verbs_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// TestExtendedPost does every operation through ibv_wr_*.
func TestExtendedPost(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Extended: true, MaxSendSGE: 3, MaxInline: 64}, verbs.CQConfig{}, verbs.ConnectConfig{})
	b.Recv(t, 8, 4096)
	remote := b.MR.Region()
	// Pieces of one length: rxe before rdma-core 64 takes all of a list to be as
	// long as the first one.
	copy(a.MR.Bytes(), "one....two..six")
	require.NoError(t, b.MR.Store64(8192, 40))

	batch := a.Batch(t, 16)
	batch.Write(1, verbs.Signaled, remote.At(100_000), a.MR.SGE(0, 3), a.MR.SGE(7, 3), a.MR.SGE(12, 3))
	batch.Read(2, verbs.Signaled, remote.At(100_000), a.MR.SGE(1000, 9))
	batch.Send(3, verbs.Signaled, a.MR.SGE(0, 3))
	batch.SendImm(4, verbs.Signaled, 44, a.MR.SGE(0, 0))
	batch.WriteImm(5, verbs.Signaled, 55, remote.At(200_000), a.MR.SGE(12, 3))
	batch.FetchAdd(6, verbs.Signaled, remote.At(8192), 2, a.MR.SGE(2000, 8))
	batch.CmpSwap(7, verbs.Signaled, remote.At(8192), 42, 99, a.MR.SGE(2008, 8))
	batch.SendInline(8, verbs.Signaled, []byte("inline"))
	batch.WriteInline(9, verbs.Signaled, remote.At(300_000), []byte("inline too"))
	wcs := a.Do(t, batch, 9)
	for i, op := range []verbs.WCOpcode{verbs.WCWrite, verbs.WCRead, verbs.WCSend, verbs.WCSend, verbs.WCWrite, verbs.WCFetchAdd, verbs.WCCmpSwap, verbs.WCSend, verbs.WCWrite} {
		require.EqualValues(t, i+1, wcs[i].ID())
		require.Equal(t, op, wcs[i].Opcode(), "request %d", i+1)
	}
	require.Equal(t, "onetwosix", string(a.MR.Bytes()[1000:1009]))
	require.EqualValues(t, 40, verbs.Uint64(a.MR.Bytes(), 2000))
	require.EqualValues(t, 42, verbs.Uint64(a.MR.Bytes(), 2008))
	require.EqualValues(t, 99, verbs.Uint64(b.MR.Bytes(), 8192))
	require.Equal(t, "six", string(b.MR.Bytes()[200_000:200_003]))
	require.Equal(t, "inline too", string(b.MR.Bytes()[300_000:300_010]))
	got := b.Wait(t, 4)
	require.Equal(t, "one", string(b.MR.Bytes()[:3]))
	imm, ok := got[1].Imm()
	require.True(t, ok)
	require.EqualValues(t, 44, imm)
	imm, _ = got[2].Imm()
	require.EqualValues(t, 55, imm)
	require.Equal(t, verbs.WCRecvRDMAWithImm, got[2].Opcode())
	require.Equal(t, "inline", string(b.MR.Bytes()[3*4096:3*4096+6]))

	batch.Write(10, verbs.Signaled, remote.At(0), a.MR.SGE(0, 3), a.MR.SGE(7, 300))
	if _, err := batch.Post(); !refused(t, "unequal pieces", err) {
		require.NoError(t, a.Wait(t, 1)[0].Err())
	}

	// All of a batch or nothing.
	big := a.Batch(t, a.QP.MaxSendWR())
	for range big.Cap() {
		big.Write(1, 0, remote.At(0), a.MR.SGE(0, 8))
	}
	n, err := big.Post()
	require.NoError(t, err)
	require.Equal(t, big.Cap(), n)
	for {
		batch.Write(2, 0, remote.At(0), a.MR.SGE(0, 8))
		batch.Write(3, 0, remote.At(0), a.MR.SGE(0, 8))
		if n, err = batch.Post(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Zero(t, n)
}

// TestExtendedNotMadeFor: rxe's provider has no pointers for what a queue pair was
// not made for.
func TestExtendedNotMadeFor(t *testing.T) {
	for _, c := range []struct {
		typ  verbs.QPType
		name string
		add  func(b *verbs.Batch, at verbs.Remote, local verbs.SGE)
	}{
		{verbs.RC, "SEND_WITH_INV", func(b *verbs.Batch, _ verbs.Remote, local verbs.SGE) {
			b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: 7}, Local: []verbs.SGE{local}})
		}},
		{verbs.RC, "LOCAL_INV", func(b *verbs.Batch, _ verbs.Remote, local verbs.SGE) {
			b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: 7}})
		}},
		{verbs.UC, "READ", func(b *verbs.Batch, at verbs.Remote, local verbs.SGE) { b.Read(2, verbs.Signaled, at, local) }},
		{verbs.UC, "FETCH_ADD", func(b *verbs.Batch, at verbs.Remote, local verbs.SGE) { b.FetchAdd(2, verbs.Signaled, at, 1, local) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := rig.NewPair(t, verbs.QPConfig{Type: c.typ, Extended: true}, verbs.CQConfig{}, verbs.ConnectConfig{})
			batch := x.Batch(t, 2)
			batch.Write(1, verbs.Signaled, y.MR.Region().At(0), x.MR.SGE(0, 8))
			c.add(batch, y.MR.Region().At(0), x.MR.SGE(0, 8))
			n, err := batch.Post()
			require.ErrorIs(t, err, verbs.ErrUnsupported)
			require.ErrorContains(t, err, c.name+": this "+c.typ.String())
			require.Zero(t, n)
			batch.Write(3, verbs.Signaled, y.MR.Region().At(0), x.MR.SGE(0, 8))
			wcs := x.Do(t, batch, 1)
			require.EqualValues(t, 3, wcs[0].ID(), "nothing of the batch was posted")
		})
	}
}

// TestPostUntilFull: post until the queue is full, poll, go on, is what programs
// are told to do. Each WRITE arrives once and whole, most of them unsignaled.
func TestPostUntilFull(t *testing.T) {
	const writes, every = 200, 5
	for _, extended := range []bool{false, true} {
		a, b := rig.NewPair(t, verbs.QPConfig{Extended: extended, MaxSendWR: 15}, verbs.CQConfig{}, verbs.ConnectConfig{})
		for i := range writes {
			binary.NativeEndian.PutUint64(a.MR.Bytes()[i*64:], uint64(i+1))
		}
		batch := a.Batch(t, 1)
		full, done := 0, 0
		for i := 0; i < writes; {
			flags := verbs.SendFlags(0)
			if i%every == every-1 {
				flags = verbs.Signaled
			}
			batch.Write(uint64(i), flags, b.MR.Region().At(uint64(i*64)), a.MR.SGE(i*64, 64))
			_, err := batch.Post()
			if err == nil {
				i++
				continue
			}
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			full++
			wc := a.Wait(t, 1)[0]
			require.NoError(t, wc.Err())
			require.EqualValues(t, done*every+every-1, wc.ID())
			done++
		}
		if extended { // what is posted plainly is counted by the provider, and rxe's is quick
			require.Positive(t, full)
		}
		for _, wc := range a.Wait(t, writes/every-done) {
			require.NoError(t, wc.Err())
		}
		for i := range writes {
			require.EqualValues(t, i+1, verbs.Uint64(b.MR.Bytes(), i*64))
		}
	}
}

// TestConcurrentPosts: several goroutines post to one queue pair and several poll
// its completion queue. Each request completes once, and in the end all room is
// back.
func TestConcurrentPosts(t *testing.T) {
	const posters, pollers, each = 4, 2, 150
	a, b := rig.NewPair(t, verbs.QPConfig{Extended: true, MaxSendWR: 16}, verbs.CQConfig{}, verbs.ConnectConfig{})
	var wg, polling sync.WaitGroup
	for p := range posters {
		batch := a.Batch(t, 3)
		wg.Go(func() {
			for i := 0; i < each; {
				for k := range 3 {
					batch.Write(uint64(p*each+i+k), verbs.Signaled, b.MR.Region().At(uint64(p*64)), a.MR.SGE(p*64, 8))
				}
				switch n, err := batch.Post(); {
				case err == nil && n == 3:
					i += 3
				case errors.Is(err, verbs.ErrQueueFull) && n == 0:
					runtime.Gosched()
				default:
					t.Errorf("%d posted: %v", n, err)
					return
				}
			}
		})
	}
	var mu sync.Mutex
	seen := make(map[uint64]int)
	deadline := time.Now().Add(rig.Timeout)
	for range pollers {
		polling.Go(func() {
			wcs := make([]verbs.WC, 5)
			for done := false; !done && time.Now().Before(deadline); runtime.Gosched() {
				n, err := a.CQ.Poll(wcs)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range wcs[:n] {
					if err := wcs[i].Err(); err != nil {
						t.Error(err)
					}
					seen[wcs[i].ID()]++
				}
				done = len(seen) == posters*each
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	polling.Wait()
	require.Len(t, seen, posters*each)
	for id, n := range seen {
		require.Equal(t, 1, n, "request %d", id)
	}
	full := a.Batch(t, a.QP.MaxSendWR())
	for i := range full.Cap() {
		full.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	}
	a.Do(t, full, full.Cap())
}

func TestExtendedPostDatagrams(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD, Extended: true}, verbs.CQConfig{Fields: verbs.FieldsStandard}, verbs.ConnectConfig{})
	b.Recv(t, 2, 4096)
	copy(a.MR.Bytes(), "datagram")
	batch := a.Batch(t, 2)
	batch.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRSendImm, Imm: 77, To: new(rig.Dest(t, a, b)), Local: []verbs.SGE{a.MR.SGE(0, 8)}})
	a.Do(t, batch, 1)
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, 48, wc.Len())
	require.Equal(t, a.QP.Num(), wc.SrcQP())
	require.True(t, wc.HasGRH())
	imm, ok := wc.Imm()
	require.True(t, ok)
	require.EqualValues(t, 77, imm)
	require.Equal(t, "datagram", string(b.MR.Bytes()[40:48]))
}

func TestExtendedCQ(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Fields: verbs.FieldsStandard}, verbs.ConnectConfig{})
	b.Recv(t, 4, 4096)
	batch := a.Batch(t, 4)
	batch.SendImm(1, verbs.Signaled, 7, a.MR.SGE(0, 5))
	batch.Read(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 64))
	a.Do(t, batch, 2) // plain Poll on an extended queue
	wcs := make([]verbs.WCEx, 4)
	deadline := time.Now().Add(rig.Timeout)
	n := 0
	for n == 0 && time.Now().Before(deadline) {
		var err error
		n, err = b.CQ.PollEx(wcs)
		require.NoError(t, err)
	}
	require.Equal(t, 1, n)
	require.NoError(t, wcs[0].Err())
	require.Equal(t, 5, wcs[0].Len())
	imm, ok := wcs[0].Imm()
	require.True(t, ok)
	require.EqualValues(t, 7, imm)
	require.Zero(t, wcs[0].Timestamp())
	require.True(t, wcs[0].Time().IsZero())

	n, err := b.CQ.PollEx(wcs)
	require.NoError(t, err)
	require.Zero(t, n)

	// A failure comes through it too.
	batch.Read(3, verbs.Signaled, verbs.Remote{Addr: b.MR.Region().Addr, RKey: ^b.MR.Region().RKey}, a.MR.SGE(0, 64))
	_, err = batch.Post()
	require.NoError(t, err)
	failed := a.Wait(t, 1)[0]
	require.ErrorIs(t, failed.Err(), verbs.WCRemoteAccess)

	plain, err := a.Dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.PollEx(wcs)
	require.ErrorIs(t, err, verbs.ErrAttributes)

	stamped, err := a.Dev.CreateCQ(verbs.CQConfig{Fields: verbs.FieldTimestamp})
	if !refused(t, "timestamps", err) {
		require.NoError(t, stamped.Close())
	}
	_, err = a.Dev.Clock()
	refused(t, "device clock", err)
}

func TestExtendedCQDoesNotAllocate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Extended: true}, verbs.CQConfig{Fields: verbs.FieldsStandard}, verbs.ConnectConfig{})
	batch := a.Batch(t, 1)
	wcs := make([]verbs.WCEx, 4)
	remote, local := b.MR.Region().At(0), a.MR.SGE(0, 64)
	allocs := testing.AllocsPerRun(50, func() {
		batch.Read(1, verbs.Signaled, remote, local)
		if _, err := batch.Post(); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := a.CQ.PollEx(wcs)
			if err != nil || n == 1 && wcs[0].Err() != nil {
				t.Fatal(err, wcs[0].Err())
			}
			if n > 0 {
				return
			}
		}
	})
	require.Zero(t, allocs)
}

// offers reports whether the device makes queue pairs for the operation; one made
// without it refuses it.
func offers(t *testing.T, op verbs.SendOps) (yes bool) {
	t.Helper()
	t.Run("offered", func(t *testing.T) {
		p := rig.Ports(t)
		s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
		b := s.Batch(t, 2)
		if op == experimental.OpFlush {
			experimental.Flush(b, 1, verbs.Signaled, s.MR.Region().At(0), 64, experimental.FlushGlobal)
		} else {
			b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRAtomicWrite, Remote: s.MR.Region().At(0), Value: 1})
		}
		_, err := b.Post()
		require.ErrorIs(t, err, verbs.ErrUnsupported, "made without the operation")
		qp, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, GID: p[0].GID, Ops: op})
		if yes = err == nil; yes {
			require.NoError(t, qp.Close())
		} else {
			refused(t, op.String(), err)
		}
	})
	return yes
}

func TestAtomicWrite(t *testing.T) {
	if !offers(t, verbs.OpAtomicWrite) {
		return
	}
	a, b := rig.NewPair(t, verbs.QPConfig{Ops: verbs.OpAtomicWrite}, verbs.CQConfig{}, verbs.ConnectConfig{})
	batch := a.Batch(t, 2)
	batch.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRAtomicWrite, Remote: b.MR.Region().At(64), Value: 0x1122334455667788})
	_, err := batch.Post()
	require.NoError(t, err)
	wc := a.Wait(t, 1)[0]
	if err := wc.Err(); err != nil {
		// The provider knows the operation, this kernel's rxe does not.
		refused(t, "ATOMIC_WRITE", errors.Join(verbs.ErrUnsupported, err))
		return
	}
	refused(t, "ATOMIC_WRITE", nil)
	require.Equal(t, verbs.WCAtomWrite, wc.Opcode())
	v, err := b.MR.Load64(64)
	require.NoError(t, err)
	require.EqualValues(t, 0x1122334455667788, v)

	batch.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRAtomicWrite, Remote: b.MR.Region().At(65), Value: 1})
	_, err = batch.Post()
	require.ErrorIs(t, err, verbs.ErrRange)
}

func TestFlush(t *testing.T) {
	if !offers(t, experimental.OpFlush) {
		return
	}
	x, y := rig.NewPair(t, verbs.QPConfig{Ops: experimental.OpFlush, Access: verbs.RemoteWrite | experimental.FlushableGlobal}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := y.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteWrite | experimental.FlushableGlobal})
	if features, ferr := y.Dev.Features(); ferr == nil && !features.FlushGlobal {
		refused(t, "FLUSH", err) // kernels before 6.3
		return
	}
	require.NoError(t, err)
	defer mr.Close()
	batch := x.Batch(t, 2)
	batch.WriteInline(1, 0, mr.Region().At(0), nil)
	experimental.Flush(batch, 2, verbs.Signaled, mr.Region().At(0), 64, experimental.FlushGlobal)
	_, err = batch.Post()
	require.NoError(t, err)
	wc := x.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, verbs.WCFlush, wc.Opcode())
}
