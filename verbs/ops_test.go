//go:build linux

package verbs_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestReadAndWrite(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{MaxSendSGE: 3}, verbs.CQConfig{}, verbs.ConnectConfig{})
	remote := b.mr.Region()
	for _, size := range []int{1, 8, 64, 4096, 4097, 65536, 300_000} {
		fill(a.mr.Bytes()[:size], uint64(size))
		clear(b.mr.Bytes())
		batch := a.batch(t, 2)
		batch.Write(1, verbs.Signaled, remote.At(16), a.mr.SGE(0, size))
		wcs := a.do(t, batch, 1)
		require.Equal(t, verbs.WCWrite, wcs[0].Opcode())
		require.EqualValues(t, 1, wcs[0].ID())
		require.Equal(t, a.qp.Num(), wcs[0].QPNum())
		require.True(t, bytes.Equal(a.mr.Bytes()[:size], b.mr.Bytes()[16:16+size]), "WRITE of %d", size)
		require.Zero(t, b.mr.Bytes()[16+size], "and not a byte more")

		clear(a.mr.Bytes())
		batch.Read(2, verbs.Signaled, remote.At(16), a.mr.SGE(100, size))
		wcs = a.do(t, batch, 1)
		require.Equal(t, verbs.WCRead, wcs[0].Opcode())
		require.True(t, bytes.Equal(a.mr.Bytes()[100:100+size], b.mr.Bytes()[16:16+size]), "READ of %d", size)
		require.Zero(t, a.mr.Bytes()[99])
		require.Zero(t, a.mr.Bytes()[100+size])
	}
}

func TestScatterGather(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{MaxSendSGE: 3, MaxRecvSGE: 2}, verbs.CQConfig{}, verbs.ConnectConfig{})
	copy(a.mr.Bytes(), "one....two..three")
	batch := a.batch(t, 4)
	batch.Write(1, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(0, 3), a.mr.SGE(7, 3), a.mr.SGE(12, 5))
	a.do(t, batch, 1)
	require.Equal(t, "onetwothree", string(b.mr.Bytes()[:11]))

	batch.Read(2, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(1000, 6), a.mr.SGE(2000, 5))
	a.do(t, batch, 1)
	require.Equal(t, "onetwo", string(a.mr.Bytes()[1000:1006]))
	require.Equal(t, "three", string(a.mr.Bytes()[2000:2005]))

	recv, err := b.qp.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(9, b.mr.SGE(5000, 3), b.mr.SGE(6000, 100))
	_, err = recv.Post()
	require.NoError(t, err)
	batch.Send(3, verbs.Signaled, a.mr.SGE(0, 3), a.mr.SGE(7, 3))
	a.do(t, batch, 1)
	wc := b.wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, 6, wc.Len())
	require.Equal(t, "one", string(b.mr.Bytes()[5000:5003]))
	require.Equal(t, "two", string(b.mr.Bytes()[6000:6003]))
}

func TestAtomics(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	word := b.mr.Region().At(8)
	require.NoError(t, b.mr.Store64(8, 40))
	batch := a.batch(t, 3)

	batch.FetchAdd(1, verbs.Signaled, word, 2, a.mr.SGE(0, 8))
	wcs := a.do(t, batch, 1)
	require.Equal(t, verbs.WCFetchAdd, wcs[0].Opcode())
	old, err := a.mr.Load64(0)
	require.NoError(t, err)
	require.EqualValues(t, 40, old)

	batch.CmpSwap(2, verbs.Signaled, word, 42, 7, a.mr.SGE(0, 8))   // succeeds
	batch.CmpSwap(3, verbs.Signaled, word, 42, 99, a.mr.SGE(16, 8)) // finds 7
	wcs = a.do(t, batch, 2)
	require.Equal(t, verbs.WCCmpSwap, wcs[0].Opcode())
	require.EqualValues(t, 42, verbs.Uint64(a.mr.Bytes(), 0))
	require.EqualValues(t, 7, verbs.Uint64(a.mr.Bytes(), 16))
	now, err := b.mr.Load64(8)
	require.NoError(t, err)
	require.EqualValues(t, 7, now)

	_, err = a.mr.Load64(4)
	require.ErrorIs(t, err, verbs.ErrRange)
	require.ErrorIs(t, a.mr.Store64(bufSize, 0), verbs.ErrRange)
}

// Atomics of both sides on one word lose no update.
func TestAtomicsFromBothSides(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	const each = 200
	word := b.mr.Region().At(0)
	// b reaches its own memory through a, which only has a's region: so b adds
	// to its word over a loopback queue pair of its own.
	loop, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, GID: b.qp.GID()})
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
			lb.FetchAdd(i, verbs.Signaled, word, 1, b.mr.SGE(64, 8))
			b.do(t, lb, 1)
		}
	})
	batch := a.batch(t, 1)
	for i := range uint64(each) {
		batch.FetchAdd(i, verbs.Signaled, word, 1, a.mr.SGE(64, 8))
		a.do(t, batch, 1)
	}
	wg.Wait()
	sum, err := b.mr.Load64(0)
	require.NoError(t, err)
	require.EqualValues(t, 2*each, sum)
}

func TestSendAndReceive(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := newPair(t, verbs.QPConfig{Type: typ, MaxInline: 32}, verbs.CQConfig{}, verbs.ConnectConfig{})
			b.recv(t, 4, 4096)
			fill(a.mr.Bytes()[:4000], 3)
			batch := a.batch(t, 4)
			batch.Send(1, 0, a.mr.SGE(0, 4000))
			batch.SendImm(2, verbs.Solicited, 0xcafe1234, a.mr.SGE(0, 10))
			batch.SendInline(3, 0, []byte("inline"))
			batch.WriteImm(4, verbs.Signaled, 77, b.mr.Region().At(100_000), a.mr.SGE(0, 8))
			wcs := a.do(t, batch, 1)
			require.EqualValues(t, 4, wcs[0].ID(), "only the signaled one")

			got := b.wait(t, 4)
			for i := range got {
				require.NoError(t, got[i].Err())
				require.EqualValues(t, i, got[i].ID(), "in order")
			}
			require.Equal(t, verbs.WCRecv, got[0].Opcode())
			require.Equal(t, 4000, got[0].Len())
			require.True(t, bytes.Equal(a.mr.Bytes()[:4000], b.mr.Bytes()[:4000]))
			_, ok := got[0].Imm()
			require.False(t, ok)
			imm, ok := got[1].Imm()
			require.True(t, ok)
			require.EqualValues(t, 0xcafe1234, imm)
			require.Equal(t, "inline", string(b.mr.Bytes()[2*4096:2*4096+6]))
			require.Equal(t, verbs.WCRecvRDMAWithImm, got[3].Opcode())
			imm, ok = got[3].Imm()
			require.True(t, ok)
			require.EqualValues(t, 77, imm)
			require.True(t, bytes.Equal(a.mr.Bytes()[:8], b.mr.Bytes()[100_000:100_008]))
		})
	}
}

func TestDatagrams(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{Type: verbs.UD, MaxInline: 64}, verbs.CQConfig{}, verbs.ConnectConfig{})
	const header = 40
	b.recv(t, 3, 2048)
	to := dest(t, a, b)
	fill(a.mr.Bytes()[:1000], 5)
	batch := a.batch(t, 3)
	batch.SendTo(1, 0, to, a.mr.SGE(0, 1000))
	batch.SendToImm(2, verbs.Signaled, 99, to, a.mr.SGE(0, 4))
	a.do(t, batch, 1)
	got := b.wait(t, 2)
	require.NoError(t, got[0].Err())
	require.Equal(t, 1000+header, got[0].Len())
	require.Equal(t, a.qp.Num(), got[0].SrcQP())
	require.True(t, got[0].HasGRH())
	require.True(t, bytes.Equal(a.mr.Bytes()[:1000], b.mr.Bytes()[header:header+1000]))
	imm, ok := got[1].Imm()
	require.True(t, ok)
	require.EqualValues(t, 99, imm)

	// A wrong queue key is dropped in silence; the next datagram arrives.
	wrong := to
	wrong.QKey++
	batch.SendTo(3, 0, wrong, a.mr.SGE(0, 8))
	batch.SendTo(4, verbs.Signaled, to, a.mr.SGE(0, 9))
	a.do(t, batch, 1)
	require.Equal(t, 9+header, b.wait(t, 1)[0].Len())
}

// Inline data belongs to the program again as soon as Post returns.
func TestInlineDataIsCopiedWhilePosting(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{MaxInline: 64}, verbs.CQConfig{}, verbs.ConnectConfig{})
	require.GreaterOrEqual(t, a.qp.MaxInline(), 64)
	batch := a.batch(t, 16)
	data := make([]byte, 8)
	for i := range 16 {
		binary.NativeEndian.PutUint64(data, uint64(i))
		batch.WriteInline(uint64(i), 0, b.mr.Region().At(uint64(8*i)), data)
	}
	_, err := batch.Post()
	require.NoError(t, err)
	clear(data)
	batch.WriteInline(16, verbs.Signaled, b.mr.Region().At(128), data)
	a.do(t, batch, 1)
	for i := range 16 {
		require.EqualValues(t, i, verbs.Uint64(b.mr.Bytes(), 8*i))
	}
}

// Selective signalling over many times the queue's capacity.
func TestManyBatches(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{MaxSendWR: 64}, verbs.CQConfig{Depth: 64}, verbs.ConnectConfig{})
	batch := a.batch(t, 32)
	for round := range 40 {
		for i := range 32 {
			flags := verbs.SendFlags(0)
			if i == 31 {
				flags = verbs.Signaled
			}
			require.NoError(t, a.mr.Store64(8*i, uint64(round*32+i)))
			batch.Write(uint64(i), flags, b.mr.Region().At(uint64(8*i)), a.mr.SGE(8*i, 8))
		}
		a.do(t, batch, 1)
		last, err := b.mr.Load64(8 * 31)
		require.NoError(t, err)
		require.EqualValues(t, round*32+31, last)
	}
}

// A registered slice of the Go heap, with the collector running all the time.
func TestRegisteredSliceStaysInPlace(t *testing.T) {
	a, b := newPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	buf := make([]byte, 1<<16)
	mr, err := a.pd.RegisterMR(buf, verbs.MRConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	fill(b.mr.Bytes()[:1<<16], 11)
	batch := a.batch(t, 1)
	garbage := [][]byte{}
	for i := range 50 {
		clear(buf)
		batch.Read(uint64(i), verbs.Signaled, b.mr.Region().At(0), mr.SGE(0, len(buf)))
		a.do(t, batch, 1)
		require.True(t, bytes.Equal(buf, b.mr.Bytes()[:1<<16]))
		garbage = append(garbage, make([]byte, 1<<18))
		if i%8 == 0 {
			garbage = nil
		}
	}
	_ = garbage
}
