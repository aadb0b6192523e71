//go:build linux

package verbs_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func TestReadAndWrite(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendSGE: 3}, verbs.CQConfig{}, verbs.ConnectConfig{})
	remote := b.MR.Region()
	for _, size := range []int{1, 8, 64, 4096, 4097, 65536, 300_000} {
		rig.Fill(a.MR.Bytes()[:size], uint64(size))
		clear(b.MR.Bytes())
		batch := a.Batch(t, 2)
		batch.Write(1, verbs.Signaled, remote.At(16), a.MR.SGE(0, size))
		wcs := a.Do(t, batch, 1)
		require.Equal(t, verbs.WCWrite, wcs[0].Opcode())
		require.EqualValues(t, 1, wcs[0].ID())
		require.Equal(t, a.QP.Num(), wcs[0].QPNum())
		require.True(t, bytes.Equal(a.MR.Bytes()[:size], b.MR.Bytes()[16:16+size]), "WRITE of %d", size)
		require.Zero(t, b.MR.Bytes()[16+size], "and not a byte more")

		clear(a.MR.Bytes())
		batch.Read(2, verbs.Signaled, remote.At(16), a.MR.SGE(100, size))
		wcs = a.Do(t, batch, 1)
		require.Equal(t, verbs.WCRead, wcs[0].Opcode())
		require.True(t, bytes.Equal(a.MR.Bytes()[100:100+size], b.MR.Bytes()[16:16+size]), "READ of %d", size)
		require.Zero(t, a.MR.Bytes()[99])
		require.Zero(t, a.MR.Bytes()[100+size])
	}
}

func TestScatterGather(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendSGE: 3, MaxRecvSGE: 2}, verbs.CQConfig{}, verbs.ConnectConfig{})
	copy(a.MR.Bytes(), "one....two..three")
	batch := a.Batch(t, 4)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 3), a.MR.SGE(7, 3), a.MR.SGE(12, 5))
	a.Do(t, batch, 1)
	require.Equal(t, "onetwothree", string(b.MR.Bytes()[:11]))

	batch.Read(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(1000, 6), a.MR.SGE(2000, 5))
	a.Do(t, batch, 1)
	require.Equal(t, "onetwo", string(a.MR.Bytes()[1000:1006]))
	require.Equal(t, "three", string(a.MR.Bytes()[2000:2005]))

	recv, err := b.QP.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(9, b.MR.SGE(5000, 3), b.MR.SGE(6000, 100))
	_, err = recv.Post()
	require.NoError(t, err)
	batch.Send(3, verbs.Signaled, a.MR.SGE(0, 3), a.MR.SGE(7, 3))
	a.Do(t, batch, 1)
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, 6, wc.Len())
	require.Equal(t, "one", string(b.MR.Bytes()[5000:5003]))
	require.Equal(t, "two", string(b.MR.Bytes()[6000:6003]))
}

func TestAtomics(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	word := b.MR.Region().At(8)
	require.NoError(t, b.MR.Store64(8, 40))
	batch := a.Batch(t, 3)

	batch.FetchAdd(1, verbs.Signaled, word, 2, a.MR.SGE(0, 8))
	wcs := a.Do(t, batch, 1)
	require.Equal(t, verbs.WCFetchAdd, wcs[0].Opcode())
	old, err := a.MR.Load64(0)
	require.NoError(t, err)
	require.EqualValues(t, 40, old)

	batch.CmpSwap(2, verbs.Signaled, word, 42, 7, a.MR.SGE(0, 8))   // succeeds
	batch.CmpSwap(3, verbs.Signaled, word, 42, 99, a.MR.SGE(16, 8)) // finds 7
	wcs = a.Do(t, batch, 2)
	require.Equal(t, verbs.WCCmpSwap, wcs[0].Opcode())
	require.EqualValues(t, 42, verbs.Uint64(a.MR.Bytes(), 0))
	require.EqualValues(t, 7, verbs.Uint64(a.MR.Bytes(), 16))
	now, err := b.MR.Load64(8)
	require.NoError(t, err)
	require.EqualValues(t, 7, now)

	_, err = a.MR.Load64(4)
	require.ErrorIs(t, err, verbs.ErrRange)
	require.ErrorIs(t, a.MR.Store64(rig.BufSize, 0), verbs.ErrRange)
}

// Atomics of both sides on one word lose no update.
func TestAtomicsFromBothSides(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	const each = 200
	word := b.MR.Region().At(0)
	// b reaches its own memory through a, which only has a's region: so b adds
	// to its word over a loopback queue pair of its own.
	loop, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, GID: b.QP.GID()})
	require.NoError(t, err)
	defer func() { require.NoError(t, loop.Close()) }()
	self, err := loop.Endpoint()
	require.NoError(t, err)
	require.NoError(t, loop.Connect(self, verbs.ConnectConfig{}))
	lb, err := loop.NewBatch(1)
	require.NoError(t, err)

	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(each) {
			lb.FetchAdd(i, verbs.Signaled, word, 1, b.MR.SGE(64, 8))
			b.Do(t, lb, 1)
		}
	})
	batch := a.Batch(t, 1)
	for i := range uint64(each) {
		batch.FetchAdd(i, verbs.Signaled, word, 1, a.MR.SGE(64, 8))
		a.Do(t, batch, 1)
	}
	wg.Wait()
	sum, err := b.MR.Load64(0)
	require.NoError(t, err)
	require.EqualValues(t, 2*each, sum)
}

func TestSendAndReceive(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{Type: typ, MaxInline: 32}, verbs.CQConfig{}, verbs.ConnectConfig{})
			b.Recv(t, 4, 4096)
			rig.Fill(a.MR.Bytes()[:4000], 3)
			batch := a.Batch(t, 4)
			batch.Send(1, 0, a.MR.SGE(0, 4000))
			batch.SendImm(2, verbs.Solicited, 0xcafe1234, a.MR.SGE(0, 10))
			batch.SendInline(3, 0, []byte("inline"))
			batch.WriteImm(4, verbs.Signaled, 77, b.MR.Region().At(100_000), a.MR.SGE(0, 8))
			wcs := a.Do(t, batch, 1)
			require.EqualValues(t, 4, wcs[0].ID(), "only the signaled one")

			got := b.Wait(t, 4)
			for i := range got {
				require.NoError(t, got[i].Err())
				require.EqualValues(t, i, got[i].ID(), "in order")
			}
			require.Equal(t, verbs.WCRecv, got[0].Opcode())
			require.Equal(t, 4000, got[0].Len())
			require.True(t, bytes.Equal(a.MR.Bytes()[:4000], b.MR.Bytes()[:4000]))
			_, ok := got[0].Imm()
			require.False(t, ok)
			imm, ok := got[1].Imm()
			require.True(t, ok)
			require.EqualValues(t, 0xcafe1234, imm)
			require.Equal(t, "inline", string(b.MR.Bytes()[2*4096:2*4096+6]))
			require.Equal(t, verbs.WCRecvRDMAWithImm, got[3].Opcode())
			imm, ok = got[3].Imm()
			require.True(t, ok)
			require.EqualValues(t, 77, imm)
			require.True(t, bytes.Equal(a.MR.Bytes()[:8], b.MR.Bytes()[100_000:100_008]))
		})
	}
}

func TestDatagrams(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD, MaxInline: 64}, verbs.CQConfig{}, verbs.ConnectConfig{})
	const header = 40
	b.Recv(t, 3, 2048)
	to := rig.Dest(t, a, b)
	rig.Fill(a.MR.Bytes()[:1000], 5)
	batch := a.Batch(t, 3)
	batch.SendTo(1, 0, to, a.MR.SGE(0, 1000))
	batch.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRSendImm, Imm: 99, To: new(to), Local: []verbs.SGE{a.MR.SGE(0, 4)}})
	a.Do(t, batch, 1)
	got := b.Wait(t, 2)
	require.NoError(t, got[0].Err())
	require.Equal(t, 1000+header, got[0].Len())
	require.Equal(t, a.QP.Num(), got[0].SrcQP())
	require.True(t, got[0].HasGRH())
	require.True(t, bytes.Equal(a.MR.Bytes()[:1000], b.MR.Bytes()[header:header+1000]))
	imm, ok := got[1].Imm()
	require.True(t, ok)
	require.EqualValues(t, 99, imm)

	// A wrong queue key is dropped in silence; the next datagram arrives.
	wrong := to
	wrong.QKey++
	batch.SendTo(3, 0, wrong, a.MR.SGE(0, 8))
	batch.SendTo(4, verbs.Signaled, to, a.MR.SGE(0, 9))
	a.Do(t, batch, 1)
	require.Equal(t, 9+header, b.Wait(t, 1)[0].Len())
}

// Inline data belongs to the program again as soon as Post returns.
func TestInlineDataIsCopiedWhilePosting(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxInline: 64}, verbs.CQConfig{}, verbs.ConnectConfig{})
	require.GreaterOrEqual(t, a.QP.MaxInline(), 64)
	batch := a.Batch(t, 16)
	data := make([]byte, 8)
	for i := range 16 {
		binary.NativeEndian.PutUint64(data, uint64(i))
		batch.WriteInline(uint64(i), 0, b.MR.Region().At(uint64(8*i)), data)
	}
	_, err := batch.Post()
	require.NoError(t, err)
	clear(data)
	batch.WriteInline(16, verbs.Signaled, b.MR.Region().At(128), data)
	a.Do(t, batch, 1)
	for i := range 16 {
		require.EqualValues(t, i, verbs.Uint64(b.MR.Bytes(), 8*i))
	}
	got := driver.Gather([]byte("of "), b.MR.SGE(8, 1), b.MR.SGE(0, 0), b.MR.SGE(16, 1))
	require.Equal(t, "of \x01\x02", string(got))
}

// Selective signalling over many times the queue's capacity.
func TestManyBatches(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 64}, verbs.CQConfig{Depth: 64}, verbs.ConnectConfig{})
	batch := a.Batch(t, 32)
	for round := range 40 {
		for i := range 32 {
			flags := verbs.SendFlags(0)
			if i == 31 {
				flags = verbs.Signaled
			}
			require.NoError(t, a.MR.Store64(8*i, uint64(round*32+i)))
			batch.Write(uint64(i), flags, b.MR.Region().At(uint64(8*i)), a.MR.SGE(8*i, 8))
		}
		a.Do(t, batch, 1)
		last, err := b.MR.Load64(8 * 31)
		require.NoError(t, err)
		require.EqualValues(t, round*32+31, last)
	}
}

// A registered slice of the Go heap, with the collector running all the time.
func TestRegisteredSliceStaysInPlace(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	buf := make([]byte, 1<<16)
	mr, err := a.PD.RegisterMR(buf, verbs.MRConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	rig.Fill(b.MR.Bytes()[:1<<16], 11)
	batch := a.Batch(t, 1)
	garbage := [][]byte{}
	for i := range 50 {
		clear(buf)
		batch.Read(uint64(i), verbs.Signaled, b.MR.Region().At(0), mr.SGE(0, len(buf)))
		a.Do(t, batch, 1)
		require.True(t, bytes.Equal(buf, b.MR.Bytes()[:1<<16]))
		garbage = append(garbage, make([]byte, 1<<18))
		if i%8 == 0 {
			garbage = nil
		}
	}
	_ = garbage
}
