//go:build linux

package verbs_test

import (
	"encoding/binary"
	"errors"
	"os"
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

func TestDriverQueuePairsAreRefused(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	f, err := s.Dev.Features()
	require.NoError(t, err)
	if f.Mlx5 != nil || f.EFA != nil {
		t.Skip("this device has them")
	}
	srq, err := s.PD.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	defer srq.Close()
	for _, cfg := range []verbs.QPConfig{{Type: verbs.DCI}, {Type: verbs.DCI, Streams: 4}, {Type: verbs.DCT, SRQ: srq}, {Type: verbs.SRD}, {Ops: verbs.OpMasked}} {
		cfg.SendCQ, cfg.GID = s.CQ, p[0].GID
		_, err := s.PD.CreateQP(cfg)
		feature := map[verbs.QPType]string{verbs.DCI: "DC initiator, streams", verbs.DCT: "DC target", verbs.SRD: "EFA SRD"}[cfg.Type]
		if feature == "" {
			feature = "masked atomics, native"
		}
		require.True(t, refused(t, feature, err))
	}
	for _, cfg := range []verbs.QPConfig{{Type: verbs.DCI, Streams: 3}, {Type: verbs.DCT}, {Type: verbs.SRD, SRQ: srq}, {Type: 77}} {
		cfg.SendCQ, cfg.GID = s.CQ, p[0].GID
		_, err := s.PD.CreateQP(cfg)
		require.ErrorIs(t, err, verbs.ErrAttributes, "%v", cfg.Type)
	}
}

func TestDomainsModerationRate(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	td, err := a.Dev.AllocTD()
	if !refused(t, "thread domain", err) {
		pd, err := a.PD.ParentDomain(td)
		require.NoError(t, err)
		require.ErrorIs(t, td.Close(), verbs.ErrInUse)
		require.NoError(t, pd.Close())
		require.NoError(t, td.Close())
	}
	pd, err := a.PD.ParentDomain(nil)
	if !refused(t, "parent domain", err) {
		require.NoError(t, pd.Close())
	}
	refused(t, "moderation", a.CQ.Moderate(4, 100*time.Microsecond))
	require.ErrorIs(t, a.CQ.Moderate(-1, 0), verbs.ErrAttributes)
	require.ErrorIs(t, a.CQ.Moderate(1, time.Hour), verbs.ErrAttributes)
	refused(t, "rate limit", experimental.SetRate(a.QP, 1000, 0, 0))
}

func TestResizeCQ(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Depth: 16}, verbs.ConnectConfig{})
	batch := a.Batch(t, 8)
	for i := range 8 {
		batch.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	}
	_, err := batch.Post()
	require.NoError(t, err)
	before := a.CQ.Depth()
	err = a.CQ.Resize(500)
	if refused(t, "resize", err) {
		return
	}
	require.GreaterOrEqual(t, a.CQ.Depth(), 500)
	require.Greater(t, a.CQ.Depth(), before)
	for i, wc := range a.Wait(t, 8) {
		require.EqualValues(t, i, wc.ID(), "what was in it stays")
	}
	require.ErrorIs(t, a.CQ.Resize(0), verbs.ErrAttributes)
	require.ErrorIs(t, a.CQ.Resize(1<<30), verbs.ErrAttributes)
}

func TestMemoryKinds(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close()
	_, err = experimental.RegisterDMABuf(a.PD, f, 0, 4096, verbs.MRConfig{})
	require.Error(t, err, "no dmabuf")
	if errors.Is(err, verbs.ErrUnsupported) {
		refused(t, "dmabuf", err)
	}

	lazy, err := a.PD.AllocMR(4096, verbs.MRConfig{Access: experimental.OnDemand})
	if features, ferr := a.Dev.Features(); ferr == nil && !features.OnDemand {
		refused(t, "on-demand paging", err)
	} else {
		require.NoError(t, err)
		require.NoError(t, experimental.Prefetch(lazy, 0, 4096, experimental.AdvisePrefetchWrite, true))
		require.NoError(t, lazy.Close())
	}
	all, err := experimental.RegisterAddressSpace(a.PD, verbs.MRConfig{})
	if !refused(t, "implicit on-demand paging", err) {
		require.NoError(t, all.Close())
	}
	raw, err := a.PD.CreateQP(verbs.QPConfig{Type: verbs.RawPacket, SendCQ: a.CQ, GID: a.QP.GID()})
	if !refused(t, "raw packet queue pairs", err) {
		require.NoError(t, raw.Activate())
		require.NoError(t, raw.Close())
	}
	refused(t, "prefetch", experimental.Prefetch(a.MR, 0, 4096, experimental.AdvisePrefetch, true))
	require.ErrorIs(t, experimental.Prefetch(a.MR, -1, 1, experimental.AdvisePrefetch, true), verbs.ErrRange)

	// Rights taken back from a region hold for requests that come later.
	other, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	require.NoError(t, err)
	defer other.Close()
	if refused(t, "re-registration", other.SetAccess(verbs.RemoteRead)) {
		return
	}
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, other.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	batch.Write(2, verbs.Signaled, other.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	wc := a.Wait(t, 1)[0]
	require.ErrorIs(t, wc.Err(), verbs.WCRemoteAccess)

	second, err := b.Dev.AllocPD()
	require.NoError(t, err)
	if !refused(t, "re-registration", other.MoveTo(second)) {
		require.ErrorIs(t, second.Close(), verbs.ErrInUse)
	}
	require.NoError(t, other.Close())
	require.NoError(t, second.Close())
}

func TestSharedReceiveQueue(t *testing.T) {
	p := rig.Ports(t)
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 64})
	require.NoError(t, err)
	defer srq.Close()
	recv, err := srq.NewRecvBatch(16)
	require.NoError(t, err)
	for i := range 16 {
		recv.Recv(uint64(i), b.MR.SGE(i*64, 64))
	}
	n, err := recv.Post()
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.NoError(t, srq.Arm(8))
	limit, err := srq.Limit()
	require.NoError(t, err)
	require.Equal(t, 8, limit)
	events := b.Dev.Events(t.Context())

	var senders []*rig.Side
	for range 2 {
		a := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
		qp, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, SRQ: srq, GID: p[1].GID})
		require.NoError(t, err)
		defer qp.Close()
		_, err = qp.NewRecvBatch(1)
		require.ErrorIs(t, err, verbs.ErrAttributes, "it has no receive queue of its own")
		remote, err := qp.Endpoint()
		require.NoError(t, err)
		require.NoError(t, a.QP.Connect(remote, verbs.ConnectConfig{}))
		require.NoError(t, qp.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
		senders = append(senders, a)
	}
	require.ErrorIs(t, srq.Close(), verbs.ErrInUse)
	for i := range 12 {
		a := senders[i%2]
		batch := a.Batch(t, 1)
		binary.NativeEndian.PutUint64(a.MR.Bytes(), uint64(i))
		batch.Send(uint64(i), verbs.Signaled, a.MR.SGE(0, 8))
		a.Do(t, batch, 1)
		wc := b.Wait(t, 1)[0]
		require.NoError(t, wc.Err())
		require.EqualValues(t, i, wc.ID(), "receives are taken in order, whoever needs one")
		require.EqualValues(t, i, verbs.Uint64(b.MR.Bytes(), i*64))
	}
	for ev := range events {
		if ev.Type == verbs.EventSRQLimit {
			require.Same(t, srq, ev.SRQ)
			break
		}
	}
	big, err := srq.NewRecvBatch(srq.MaxWR())
	require.NoError(t, err)
	for range 4 { // devices round the capacity up
		for i := range big.Cap() {
			big.Recv(uint64(i), b.MR.SGE(0, 64))
		}
		if n, err = big.Post(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Less(t, n, big.Cap())
	require.Error(t, srq.Arm(1<<20))
}

func TestWindows(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := b.PD.AllocMR(8192, verbs.MRConfig{Access: verbs.BindWindow})
	require.NoError(t, err)
	defer mr.Close()
	copy(mr.Bytes()[4096:], "seen through a window")

	read := func(r verbs.Region, off uint64) verbs.WC {
		batch := a.Batch(t, 1)
		batch.Read(1, verbs.Signaled, r.At(off), a.MR.SGE(0, 21))
		_, err := batch.Post()
		require.NoError(t, err)
		return a.Wait(t, 1)[0]
	}

	w1, err := b.PD.AllocWindow(verbs.Window1)
	if refused(t, "memory windows, type 1", err) {
		return
	}
	require.ErrorIs(t, w1.Bind(b.QP, 1, verbs.Signaled, b.MR, 0, 64, verbs.RemoteRead), verbs.ErrAttributes, "a region without BindWindow")
	require.ErrorIs(t, w1.Bind(b.QP, 1, verbs.Signaled, mr, 8000, 1000, verbs.RemoteRead), verbs.ErrRange)
	require.NoError(t, w1.Bind(b.QP, 1, verbs.Signaled, mr, 4096, 1000, verbs.RemoteRead))
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, verbs.WCBindMW, wc.Opcode())
	require.ErrorIs(t, mr.Close(), verbs.ErrInUse, "a window stands on it")
	wc = read(w1.Region(), 0)
	require.NoError(t, wc.Err())
	require.Equal(t, "seen through a window", string(a.MR.Bytes()[:21]))
	require.NoError(t, w1.Close())

	w2, err := b.PD.AllocWindow(verbs.Window2)
	require.NoError(t, err)
	bind := b.Batch(t, 2)
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w1, MR: mr, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	_, err = bind.Post()
	require.ErrorIs(t, err, verbs.ErrAttributes, "type 1 in a batch")
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w2, MR: mr, Offset: 4096, Length: 1000, Access: verbs.RemoteRead | verbs.RemoteWrite}})
	b.Do(t, bind, 1)
	region := w2.Region()
	wc = read(region, 0)
	require.NoError(t, wc.Err())
	bind.Add(verbs.WR{ID: 3, Flags: verbs.Signaled, Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: region.RKey}})
	wcs := b.Do(t, bind, 1)
	require.Equal(t, verbs.WCLocalInv, wcs[0].Opcode())
	wc = read(region, 0)
	require.Error(t, wc.Err(), "the key is dead")
	require.NoError(t, w2.Close())
	require.NoError(t, mr.Close())
}

// What a request points to is closed before the batch is posted.
func TestBoundToNothing(t *testing.T) {
	_, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	region := func() *verbs.MR {
		mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.Close()) })
		return mr
	}
	w, err := b.PD.AllocWindow(verbs.Window2)
	if refused(t, "memory windows, type 2", err) {
		return
	}
	first, second := b.Batch(t, 1), b.Batch(t, 1)
	left, mr := region(), region()
	first.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: left, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	require.ErrorIs(t, left.Close(), verbs.ErrInUse)
	second.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	require.NoError(t, left.Close(), "the window has gone elsewhere")
	n, err := first.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Zero(t, n)

	require.NoError(t, w.Close())
	n, err = second.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorContains(t, err, "mw")
	require.Zero(t, n)
}

func TestSendInvalidate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	b.Recv(t, 1, 64)
	mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow})
	require.NoError(t, err)
	defer mr.Close()
	w, err := b.PD.AllocWindow(verbs.Window2)
	if refused(t, "memory windows, type 2", err) {
		return
	}
	bind := b.Batch(t, 1)
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 0, Length: 4096, Access: verbs.RemoteRead}})
	b.Do(t, bind, 1)
	batch := a.Batch(t, 1)
	batch.Add(verbs.WR{ID: 5, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: w.Region().RKey}, Local: []verbs.SGE{a.MR.SGE(0, 8)}})
	a.Do(t, batch, 1)
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	if key, ok := wc.Invalidated(); ok {
		require.Equal(t, w.Region().RKey, key)
	} else {
		t.Log("the provider does not tell of the invalidation")
	}
	_, ok := wc.Imm()
	require.False(t, ok)
	batch.Read(6, verbs.Signaled, w.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.Error(t, a.Wait(t, 1)[0].Err(), "the key is dead")
	require.NoError(t, w.Close())
	require.NoError(t, mr.Close())
}

func TestFeatures(t *testing.T) {
	s := rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
	f, err := s.Dev.Features()
	require.NoError(t, err)
	t.Logf("%+v", f)
	_, err = s.Dev.Mlx5()
	if err != nil {
		require.True(t, errors.Is(err, verbs.ErrUnsupported))
	}
}
