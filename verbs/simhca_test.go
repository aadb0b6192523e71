//go:build simhca && linux && cgo

package verbs_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// simulated skips a test where there is no simulated device of that kind.
func simulated(t *testing.T, kind string) {
	if !strings.Contains(os.Getenv("SIMHCA"), kind) {
		t.Skip("needs SIMHCA=" + kind)
	}
}

// field adds bit by bit, with no carry out of a boundary: the meaning of masked
// additions in other words than those of the library.
func field(old, add, boundary uint64, bits int) (sum uint64) {
	carry := uint64(0)
	for i := range bits {
		s := old>>i&1 + add>>i&1 + carry
		sum |= s & 1 << i
		carry = s >> 1
		if boundary>>i&1 != 0 {
			carry = 0
		}
	}
	return sum
}

// Native masked atomics through libmlx5 do what their definition says.
func TestSimulatedMasked(t *testing.T) {
	simulated(t, "mlx5")
	a, b := rig.NewPair(t, verbs.QPConfig{Ops: verbs.OpMasked}, verbs.CQConfig{}, verbs.ConnectConfig{})
	m, err := verbs.NewMasked(newRequester(t, a, verbs.RequesterConfig{}), a.MR, 0, verbs.MaskedConfig{})
	require.NoError(t, err)
	require.True(t, m.Native())
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	word, at := b.MR.Bytes()[64:], b.MR.Region().At(64)
	for range 200 {
		old := r.Uint64()
		binary.NativeEndian.PutUint64(word, old)
		c := verbs.MaskedCmpSwap{Compare: old ^ r.Uint64()&r.Uint64()&r.Uint64(), CompareMask: r.Uint64() & r.Uint64() & r.Uint64(), Swap: r.Uint64(), SwapMask: r.Uint64()}
		got, err := m.CmpSwap(t.Context(), at, c)
		require.NoError(t, err)
		require.Equal(t, old, got)
		want := old
		if (old^c.Compare)&c.CompareMask == 0 {
			want = old&^c.SwapMask | c.Swap&c.SwapMask
		}
		require.Equal(t, want, binary.NativeEndian.Uint64(word), "%+v", c)

		f := verbs.MaskedFetchAdd{Add: r.Uint64(), Boundary: r.Uint64() & r.Uint64()}
		got, err = m.FetchAdd(t.Context(), at, f)
		require.NoError(t, err)
		require.Equal(t, want, got)
		sum := field(want, f.Add, f.Boundary, 64)
		require.Equal(t, sum, binary.NativeEndian.Uint64(word), "%+v", f)

		half := binary.NativeEndian.Uint32(word)
		other := binary.NativeEndian.Uint32(word[4:])
		got32, err := m.FetchAdd32(t.Context(), at, f)
		require.NoError(t, err)
		require.Equal(t, half, got32)
		require.EqualValues(t, field(uint64(half), f.Add, f.Boundary, 32), binary.NativeEndian.Uint32(word), "%+v", f)
		require.Equal(t, other, binary.NativeEndian.Uint32(word[4:]))

		half = binary.NativeEndian.Uint32(word)
		c.Compare = uint64(half) ^ r.Uint64()&r.Uint64()&r.Uint64()
		got32, err = m.CmpSwap32(t.Context(), at, c)
		require.NoError(t, err)
		require.Equal(t, half, got32)
		want = uint64(half)
		if (want^c.Compare)&c.CompareMask&0xffffffff == 0 {
			want = want&^c.SwapMask | c.Swap&c.SwapMask
		}
		require.Equal(t, uint32(want), binary.NativeEndian.Uint32(word), "%+v", c)
		require.Equal(t, other, binary.NativeEndian.Uint32(word[4:]))
	}
}

// dct is a target with receives of size bytes, from the start of a side's memory.
func dct(t *testing.T, s *rig.Side, p rig.Port, key uint64, receives int) *verbs.QP {
	srq, err := s.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srq.Close()) })
	q, err := s.PD.CreateQP(verbs.QPConfig{Type: verbs.DCT, SendCQ: s.CQ, SRQ: srq, GID: p.GID, DCKey: key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	require.NoError(t, q.Activate())
	batch, err := srq.NewRecvBatch(receives)
	require.NoError(t, err)
	for i := range receives {
		batch.Recv(uint64(i), s.MR.SGE(i*64, 64))
	}
	_, err = batch.Post()
	require.NoError(t, err)
	return q
}

// A DCI reaches targets through the real libmlx5; a stream in error is reset, and
// the others go on meanwhile.
func TestSimulatedDC(t *testing.T) {
	simulated(t, "mlx5")
	for _, streams := range []int{0, 4} {
		p := rig.Ports(t)
		a := rig.NewSide(t, p[0], verbs.QPConfig{Type: verbs.DCI, Streams: streams, MaxInline: 32, Ops: verbs.OpMasked}, verbs.CQConfig{})
		b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
		require.NoError(t, driver.ActivateWith(a.QP, verbs.ConnectConfig{AckTimeout: time.Millisecond}))
		one, two := dct(t, b, p[1], 7, 4), dct(t, b, p[1], 8, 4)
		ah, err := a.PD.CreateAH(verbs.AHAttr{GID: p[1].GID.GID, SGIDIndex: p[0].GID.Index, Port: 1, DLID: b.Endpoint(t).LID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ah.Close()) })
		to := func(q *verbs.QP, key uint64, stream int) verbs.Target {
			return verbs.Target{AH: ah, QPN: q.Num(), DCKey: key, Stream: min(stream, streams)}
		}
		batch := a.Batch(t, 8)
		rig.Fill(a.MR.Bytes()[:512], 3)
		batch.SetTarget(to(one, 7, 1))
		batch.Write(1, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 512))
		batch.SetTarget(to(two, 8, 2))
		batch.SendInline(2, verbs.Signaled, []byte("hello"))
		a.Do(t, batch, 2)
		require.Equal(t, a.MR.Bytes()[:512], b.MR.Bytes()[4096:4608])
		got := b.Wait(t, 1)
		require.NoError(t, got[0].Err())
		require.Equal(t, two.Num(), got[0].QPNum())
		require.Equal(t, "hello", string(b.MR.Bytes()[:5]))

		batch.SetTarget(to(one, 99, 1)) // the wrong key
		batch.Write(3, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.NoError(t, err)
		require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
		if streams == 0 {
			q, err := a.QP.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateError, q.State)
			continue
		}
		batch.SetTarget(to(two, 8, 2))
		batch.Write(4, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
		a.Do(t, batch, 1)
		batch.SetTarget(to(one, 7, 1))
		batch.Write(5, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.NoError(t, err)
		require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCFlushed)
		require.NoError(t, a.QP.ResetStream(1))
		batch.SetTarget(to(one, 7, 1))
		batch.Write(6, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
		a.Do(t, batch, 1)

		// A masked atomic is a raw entry, which names its stream itself.
		masked := func(id uint64, to verbs.Target) {
			batch.SetTarget(to)
			batch.Add(verbs.WR{ID: id, Flags: verbs.Signaled, Op: verbs.WRMaskedFetchAdd, Remote: b.MR.Region().At(4096), Value: 1, Local: []verbs.SGE{a.MR.SGE(0, 8)}})
		}
		masked(7, to(one, 99, 2))
		masked(8, to(one, 7, 3))
		_, err = batch.Post()
		require.NoError(t, err)
		for _, wc := range a.Wait(t, 2) {
			require.Equal(t, wc.ID() == 8, wc.Err() == nil, "%v", wc.Err())
		}
		batch.SetTarget(to(two, 8, 2))
		batch.Write(9, verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.NoError(t, err)
		require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCFlushed)
		require.NoError(t, a.QP.ResetStream(2))
	}
}

// SRD through the real libefa: messages and READs, each once and whole, in
// whatever order; what EFA refuses.
func TestSimulatedSRD(t *testing.T) {
	simulated(t, "efa")
	a, b := srdSide(t), srdSide(t)
	ah, err := a.PD.CreateAH(verbs.AHAttr{GID: a.gid.GID, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	back, err := b.PD.CreateAH(verbs.AHAttr{GID: b.gid.GID, Port: 1}) // EFA's responder needs the READ's sender
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, back.Close()) })
	to := verbs.Target{AH: ah, QPN: b.QP.Num(), QKey: verbs.DefaultQKey}
	const n = 16
	batch := a.Batch(t, n)
	moved := false
	for round := range 20 {
		b.Recv(t, n, 64)
		batch.SetTarget(to)
		for i := range n {
			a.MR.Bytes()[8192+64*i] = byte(i + round)
			batch.SendImm(uint64(i), verbs.Signaled, uint32(i), a.MR.SGE(8192+64*i, 64))
		}
		a.Do(t, batch, n)
		for i, wc := range b.Wait(t, n) {
			require.NoError(t, wc.Err())
			imm, ok := wc.Imm()
			require.True(t, ok)
			moved = moved || int(imm) != i
			require.Equal(t, byte(imm)+byte(round), b.MR.Bytes()[64*wc.ID()])
		}
		batch.SetTarget(to)
		batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(16384, 4096))
		a.Do(t, batch, 1)
		require.Equal(t, b.MR.Bytes()[:4096], a.MR.Bytes()[16384:][:4096])
	}
	spec := os.Getenv("SIMHCA")
	require.Equal(t, strings.Contains(spec, "reverse") || strings.Contains(spec, "random"), moved)
	batch.SetTarget(verbs.Target{AH: ah, QPN: b.QP.Num() + 1, QKey: verbs.DefaultQKey})
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.Error(t, a.Wait(t, 1)[0].Err(), "nobody is there")
}

type srd struct {
	*rig.Side
	gid verbs.GIDEntry
}

func srdSide(t *testing.T) srd {
	d, err := verbs.Open("efa_0", verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
	require.NoError(t, err)
	s := &rig.Side{Dev: d}
	s.PD, err = d.AllocPD()
	require.NoError(t, err)
	s.CQ, err = d.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	s.MR, err = s.PD.AllocMR(rig.BufSize, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	s.QP, err = s.PD.CreateQP(verbs.QPConfig{Type: verbs.SRD, SendCQ: s.CQ, GID: gid})
	require.NoError(t, err)
	require.NoError(t, s.QP.Activate())
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{s.QP, s.MR, s.CQ, s.PD, s.Dev} {
			require.NoError(t, c.Close())
		}
	})
	return srd{s, gid}
}

// Faults by choice: a request that fails, one that is late, a queue pair that
// breaks, a device that goes.
func TestSimulatedFaults(t *testing.T) {
	simulated(t, "mlx5")
	p := rig.Ports(t)
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	batch := a.Batch(t, 4)
	write := func(n int) []verbs.WC {
		for i := range n {
			batch.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		}
		_, err := batch.Post()
		require.NoError(t, err)
		return a.Wait(t, n)
	}
	start := time.Now()
	require.NoError(t, simhca.Hold(p[0].Name, a.QP.Num(), 20*time.Millisecond))
	require.NoError(t, write(1)[0].Err())
	require.Greater(t, time.Since(start), 15*time.Millisecond)

	require.NoError(t, simhca.Fail(p[0].Name, a.QP.Num(), 1, uint32(verbs.WCRetryExceeded)))
	wcs := write(3)
	require.NoError(t, wcs[0].Err())
	require.ErrorIs(t, wcs[1].Err(), verbs.WCRetryExceeded)
	require.ErrorIs(t, wcs[2].Err(), verbs.WCFlushed)

	require.NoError(t, simhca.Break(p[1].Name, b.QP.Num()))
	require.Eventually(t, func() bool { q, err := b.QP.Query(); return err == nil && q.State == verbs.StateError }, rig.Timeout, time.Millisecond)
	require.Error(t, simhca.Break("mlx5_7", 5))
}

// A thousand queue pairs, all of which work.
func TestSimulatedThousand(t *testing.T) {
	simulated(t, "mlx5")
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	var all []*verbs.QP
	for range 1000 {
		q, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, GID: p[0].GID, MaxSendWR: 4, MaxRecvWR: 4})
		require.NoError(t, err)
		all = append(all, q)
	}
	for i, q := range all {
		e, err := all[i^1].Endpoint()
		require.NoError(t, err)
		require.NoError(t, q.Connect(e, verbs.ConnectConfig{}))
	}
	for i, q := range all {
		batch, err := q.NewBatch(1)
		require.NoError(t, err)
		a := uint64(i)
		batch.Write(a, verbs.Signaled, s.MR.Region().At(8*a), s.MR.SGE(8*i, 8))
		_, err = batch.Post()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		for n := 0; n == 0; {
			n, err = s.CQ.Wait(ctx, wcs[:])
			require.NoError(t, err)
		}
		require.NoError(t, wcs[0].Err())
		require.Equal(t, a, wcs[0].ID())
	}
	for _, q := range all {
		require.NoError(t, q.Close())
	}
}

// A program that is started without the variable sees no device, one that is
// started with it has devices of its own.
func TestSimulatedPrograms(t *testing.T) {
	if os.Getenv("SIMHCA_LIST") != "" {
		list, err := verbs.Devices()
		require.NoError(t, err)
		for _, d := range list {
			t.Log("device", d.Name)
		}
		return
	}
	simulated(t, "")
	for _, c := range []struct{ spec, want string }{{"", ""}, {"efa mlx5:ib", "efa_0 mlx5_0"}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSimulatedPrograms$", "-test.v")
		cmd.Env = append(os.Environ(), "SIMHCA_LIST=1", "SIMHCA="+c.spec)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, name := range []string{"efa_0", "mlx5_0"} {
			require.Equal(t, strings.Contains(c.want, name), strings.Contains(string(out), "device "+name), "%s", out)
		}
	}
}
