//go:build linux && cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/cgo/standin"
)

// driverRig is a device without an owner, with a provider that writes down what is called.
func driverRig(t *testing.T) (*Device, *PD, *CQ, *SRQ) {
	t.Helper()
	t.Cleanup(standin.Record())
	d := wrapDevice("standin", standin.Context(), DeviceAttr{MaxCQE: 1024, MaxReadAtomic: 16, MaxInitRead: 16, Atomic: AtomicHCA})
	p, err := d.AllocPD()
	require.NoError(t, err)
	c, err := d.CreateCQ(CQConfig{PollOnly: true})
	require.NoError(t, err)
	s, err := p.CreateSRQ(SRQConfig{})
	require.NoError(t, err)
	return d, p, c, s
}

// driverAH is an address handle that the stand-in knows by that number.
func driverAH(t *testing.T, p *PD, number byte) *AH {
	t.Helper()
	a, err := p.CreateAH(AHAttr{GID: GID{10: 0xff, 11: 0xff, 15: number}, SGIDIndex: 3, Port: 1})
	require.NoError(t, err)
	return a
}

func recorded(t *testing.T, want string) {
	t.Helper()
	require.Equal(t, standin.Expected(want), standin.Recorded())
}

var (
	standinGID  = GIDEntry{Port: 1, Index: 3, Type: GIDRoCEv2}
	standinPeer = GID{10: 0xff, 11: 0xff, 15: 0xa1}
)

// The sequences below follow rdma-core's manual pages mlx5dv_create_qp(3),
// mlx5dv_wr_post(3), efadv_create_qp_ex(3) and the kernel's state tables of the
// two drivers.

func TestDCISequence(t *testing.T) {
	d, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: DCI, SendCQ: c, GID: standinGID, MaxSendWR: 64, MaxInline: 32, Streams: 8})
	require.NoError(t, err)
	require.Equal(t, 64, q.MaxSendWR(), "with streams the queue is made twice as long")
	q.psn = 7
	require.NoError(t, q.Activate())
	// DRIVER, PD|SEND_OPS_FLAGS; no receives; INIT with PKEY_INDEX and PORT
	// alone, RTR with PATH_MTU alone.
	recorded(t, `
		mlx5dv_create_qp type=0xff mask=0x41 ops=0x7f cap=128,0,1,0,32 srq=0
		  mlx5 mask=0xa dc_type=2 streams=2^3 errored=2^3
		modify mask=0x31 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111
		modify mask=0x101 state=2 mtu=5 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=12 global=1 qkey=0
		modify mask=0x12e01 state=3 mtu=0 port=0 timeout=14 retry=6 rnr=7 reads=16 min_rnr=0 global=0 qkey=0`)

	ah1, ah2 := driverAH(t, p, 0xa1), driverAH(t, p, 0xa2)
	recorded(t, `
		create_ah global=1 gid=..a1 index=3 hops=64 port=1 dlid=0
		create_ah global=1 gid=..a2 index=3 hops=64 port=1 dlid=0`)
	b, err := q.NewBatch(8)
	require.NoError(t, err)
	sge := SGE{Addr: 0x5000, Length: 64, LKey: 9}
	b.SetTarget(Target{AH: ah1, QPN: 0x77, DCKey: 0xdddddddddddd, Stream: 1})
	b.Write(1, Signaled, Remote{Addr: 0x1000, RKey: 5}, sge)
	b.Read(2, 0, Remote{Addr: 0x2000, RKey: 5}, sge)
	b.SetTarget(Target{AH: ah2, QPN: 0x88, DCKey: 0xee})
	b.FetchAdd(3, Signaled, Remote{Addr: 0x3000, RKey: 6}, 4, SGE{Addr: 0x6000, Length: 8, LKey: 9})
	b.SendInline(4, Signaled, []byte("hello"))
	n, err := b.Post()
	require.NoError(t, err)
	require.Equal(t, 4, n)
	recorded(t, `
		start
		write id=0x1 flags=0x2 rkey=0x5 addr=0x1000
		  dc ah=0xa1 dctn=0x77 key=0xdddddddddddd stream=1
		  sge lkey=0x9 addr=0x5000 length=64
		read id=0x2 flags=0 rkey=0x5 addr=0x2000
		  dc ah=0xa1 dctn=0x77 key=0xdddddddddddd stream=1
		  sge lkey=0x9 addr=0x5000 length=64
		fetch_add id=0x3 flags=0x2 rkey=0x6 addr=0x3000 add=4
		  dc ah=0xa2 dctn=0x88 key=0xee
		  sge lkey=0x9 addr=0x6000 length=8
		send id=0x4 flags=0xa
		  dc ah=0xa2 dctn=0x88 key=0xee
		  inline "hello"
		complete`)

	b.Write(5, Signaled, Remote{Addr: 0x1000, RKey: 5}, sge)
	_, err = b.Post()
	require.ErrorIs(t, err, ErrAttributes, "a target is for one batch")
	require.ErrorContains(t, err, "SetTarget")
	require.NoError(t, q.ResetStream(3))
	f, err := d.Mlx5()
	require.NoError(t, err)
	require.Equal(t, Mlx5Features{Streams: 64, ErroredStreams: 16}, f)
	require.NoError(t, q.Close())
	recorded(t, `
		mlx5dv_dci_stream_id_reset stream=3
		mlx5dv_query_device mask=0x1880
		destroy`)
}

func TestDCTSequence(t *testing.T) {
	_, p, c, s := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: DCT, SendCQ: c, SRQ: s, GID: standinGID, DCKey: 0x1234567890abcdef})
	require.NoError(t, err)
	require.NoError(t, q.Activate())
	require.Equal(t, StateRTR, q.State())
	require.EqualValues(t, 0x4711, q.Num(), "valid once it is ready to receive")
	recorded(t, `
		mlx5dv_create_qp type=0xff mask=0x1 ops=0 cap=0,0,0,0,0 srq=1
		  mlx5 mask=0x2 dc_type=1 key=0x1234567890abcdef
		modify mask=0x39 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111
		modify mask=0x8181 state=2 mtu=5 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=12 global=1 qkey=0`)
	b, err := q.NewBatch(1)
	if err == nil {
		b.Send(1, Signaled)
		_, err = b.Post()
	}
	require.Error(t, err, "a target sends nothing")
	require.NoError(t, q.Close())
}

func TestSRDSequence(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: SRD, SendCQ: c, GID: standinGID, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2})
	require.NoError(t, err)
	require.NoError(t, q.Activate())
	recorded(t, `
		efadv_query_device
		efadv_create_qp_ex type=0xff mask=0x41 ops=0x1c cap=16,16,2,1,0 srq=0
		  efa mask=0 driver_type=0
		modify mask=0x71 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111
		modify mask=0x1 state=2 mtu=0 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=1 global=1 qkey=0
		modify mask=0x10001 state=3 mtu=0 port=0 timeout=1 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0`)
	ah := driverAH(t, p, 0xa1)
	standin.Recorded()
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	b.SetTarget(Target{AH: ah, QPN: 0x55, QKey: 0x66})
	b.Read(1, Signaled, Remote{Addr: 0x2000, RKey: 5}, SGE{Addr: 0x5000, Length: 64, LKey: 9})
	b.SendImm(2, 0, 3, SGE{Addr: 0x5000, Length: 64, LKey: 9}, SGE{Addr: 0x6000, Length: 32, LKey: 9})
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		read id=0x1 flags=0x2 rkey=0x5 addr=0x2000
		  ud ah=0xa1 qpn=0x55 qkey=0x66
		  sge lkey=0x9 addr=0x5000 length=64
		send_imm id=0x2 flags=0x2 imm=0x3
		  ud ah=0xa1 qpn=0x55 qkey=0x66
		  sge list of 2
		  sge lkey=0x9 addr=0x5000 length=64
		  sge lkey=0x9 addr=0x6000 length=32
		complete`)
	require.NoError(t, q.Close())
}

// TestNativeMasked: the raw entry reaches mlx5dv as TestMaskedWQE has it.
func TestNativeMasked(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Ops: OpMasked})
	require.NoError(t, err)
	recorded(t, `
		mlx5dv_create_qp type=0x2 mask=0x41 ops=0x7f cap=128,128,2,1,0 srq=0
		  mlx5 mask=0x4 ops=0x8
		modify mask=0x39 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111`)
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	standin.Recorded()
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	at := Remote{Addr: 0x1000, RKey: 2}
	b.Add(WR{ID: 6, Flags: Signaled, Op: WRMaskedFetchAdd, Remote: at, Value: 1, Mask: 0x80, Local: []SGE{{Addr: 0x5000, Length: 8, LKey: 9}}})
	b.Add(WR{ID: 7, Op: WRMaskedCmpSwap, Remote: at, Compare: 1, CompareMask: 2, Value: 3, Mask: 4, Local: []SGE{{Addr: 0x5008, Length: 4, LKey: 9}}})
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		raw id=0x6 flags=0x2 `+"09000015004711040000000800000000"+"00000000000010000000000200000000"+"00000000000000010000000000000080"+"00000008000000090000000000005000"+`
		raw id=0x7 flags=0 `+"08000014004711040000000000000000"+"00000000000010000000000200000000"+"00000003000000010000000400000002"+"00000004000000090000000000005008"+`
		complete`)
	entry := make([]byte, 32)
	entry[3], entry[7] = 0x0a, 2
	b.Raw(9, Signaled, entry)
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		raw id=0x9 flags=0x2 0000000a00000002000000080000000000000000000000000000000000000000
		complete`)
	b.Raw(9, Signaled, entry[:16])
	_, err = b.Post()
	require.ErrorIs(t, err, ErrAttributes)
	b.Add(WR{ID: 8, Op: WRMaskedFetchAdd, Remote: Remote{Addr: 0x1001, RKey: 2}, Local: []SGE{{Length: 8}}})
	_, err = b.Post()
	require.ErrorIs(t, err, ErrRange)
	require.NoError(t, q.Close())
}

// TestMaskedDCI: in front of the operation stands the address vector, with
// number and key of the target, and the stream in the control segment. The
// bytes are those that a C program makes with the structures of mlx5dv.h.
func TestMaskedDCI(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: DCI, SendCQ: c, GID: standinGID, Ops: OpMasked, Streams: 8, ErroredStreams: 1})
	require.NoError(t, err)
	require.NoError(t, q.Activate())
	ah := driverAH(t, p, 0xa1)
	standin.Recorded()
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	at, result := Remote{Addr: 0x1000, RKey: 5}, SGE{Addr: 0x5000, Length: 8, LKey: 9}
	b.SetTarget(Target{AH: ah, QPN: 0x77, DCKey: 0xdddddddddddd, Stream: 5})
	b.Add(WR{ID: 6, Flags: Signaled, Op: WRMaskedCmpSwap, Remote: at, Compare: 1, CompareMask: 2, Value: 3, Mask: 4, Local: []SGE{result}})
	b.Write(7, Signaled, at, result)
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		mlx5dv_init_obj type=0x20
		start
		raw id=0x6 flags=0x2 `+"09000014004711080000050800000000"+"0000dddddddddddd800000775000c000"+"00000000bbbbbbbbbbbb004040300000"+
		"00000000000000000000ffff000000a1"+"00000000000010000000000500000000"+"00000000000000030000000000000001"+
		"00000000000000040000000000000002"+"00000008000000090000000000005000"+`
		write id=0x7 flags=0x2 rkey=0x5 addr=0x1000
		  dc ah=0xa1 dctn=0x77 key=0xdddddddddddd stream=5
		  sge lkey=0x9 addr=0x5000 length=8
		complete`)
	b.SetTarget(Target{AH: ah, QPN: 0x78, DCKey: 1})
	b.Add(WR{ID: 8, Op: WRMaskedFetchAdd, Remote: at, Value: 1, Mask: 0x80, Local: []SGE{result}})
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		raw id=0x8 flags=0 `+"09000015004711070000000000000000"+"0000000000000001800000785000c000"+"00000000bbbbbbbbbbbb004040300000"+
		"00000000000000000000ffff000000a1"+"00000000000010000000000500000000"+"00000000000000010000000000000080"+"00000008000000090000000000005000"+`
		complete`)
	b.Add(WR{ID: 8, Op: WRMaskedFetchAdd, Remote: at, Local: []SGE{result}})
	_, err = b.Post()
	require.ErrorContains(t, err, "SetTarget")
	require.NoError(t, q.Close())
}

// TestFlushSequence: FLUSH goes through the pointer that the headers have for
// it, on a queue pair that the headers describe.
func TestFlushSequence(t *testing.T) {
	cfg := QPConfig{Ops: opFlush | OpMasked}
	t.Run("made", func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Ops: cfg.Ops, KeepReset: true})
		if cgo.FlushOffset() == 0 {
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, "rdma-core 45")
			return
		}
		require.NoError(t, err)
		recorded(t, `
		mlx5dv_create_qp type=0x2 mask=0x41 ops=0x87f cap=128,128,2,1,0 srq=0
		  mlx5 mask=0x4 ops=0x8`)
		require.NoError(t, q.Close())
	})
	if cgo.FlushOffset() == 0 {
		return
	}
	t.Run("sent", func(t *testing.T) {
		_, b, _, _ := connected(t, cfg, 2)
		b.flush(1, Signaled, Remote{Addr: 0x1000, RKey: 5}, 64, flushGlobal)
		b.flush(2, 0, Remote{Addr: 0x2000, RKey: 6}, 0, flushGlobal|flushPersistent)
		_, err := b.Post()
		require.NoError(t, err)
		recorded(t, `
		start
		flush id=0x1 flags=0x2 rkey=0x5 addr=0x1000 length=64 type=1 level=0
		flush id=0x2 flags=0 rkey=0x6 addr=0x2000 length=0 type=3 level=1
		complete`)
	})
}

func TestErroredStreams(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: DCI, SendCQ: c, GID: standinGID, Streams: 8, ErroredStreams: 1, KeepReset: true})
	require.NoError(t, err)
	recorded(t, `
		mlx5dv_create_qp type=0xff mask=0x41 ops=0x7f cap=256,0,1,0,0 srq=0
		  mlx5 mask=0xa dc_type=2 streams=2^3 errored=2^0`)
	require.NoError(t, q.Close())
	for _, bad := range []int{-1, 3, 16} {
		_, err = p.CreateQP(QPConfig{Type: DCI, SendCQ: c, GID: standinGID, Streams: 8, ErroredStreams: bad})
		require.ErrorIs(t, err, ErrAttributes)
	}
}
