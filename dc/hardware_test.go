//go:build linux && cgo

package dc_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// The sequences below follow rdma-core's manual pages mlx5dv_create_qp(3),
// mlx5dv_wr_post(3) and mlx5dv_dci_stream_id_reset(3), and its tests
// test_mlx5_dc.py. There is no device: its provider records the calls,
// and the tests say how requests end.

var standinGID = verbs.GIDEntry{GID: gidOf(0xee), Port: 1, Index: 3, Type: verbs.GIDRoCEv2}

// gidOf is the address of a host that the stand-in knows by that number.
func gidOf(host byte) verbs.GID { return verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: host} }

const firstQP = 0x4711 // of the stand-in

func standinPD(t testing.TB) *verbs.PD {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{MaxCQE: 1 << 16, MaxReadAtomic: 16, MaxInitRead: 16, Atomic: verbs.AtomicHCA})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	return pd
}

func standinInitiator(t testing.TB, cfg dc.InitiatorConfig) *dc.Initiator {
	t.Helper()
	cfg.PD, cfg.GID, cfg.Backend = standinPD(t), standinGID, dc.Hardware
	i, err := dc.NewInitiator(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	standin.Recorded()
	return i
}

// dctAt is the address of the DCT of that number at a host.
func dctAt(host byte, dctn uint32) dc.Address {
	return dc.Address{GID: gidOf(host), MTU: verbs.MTU4096, QPN: dctn, Generation: 0xff00, Hardware: true}
}

func resolveDCT(t testing.TB, i *dc.Initiator, host byte, dctn uint32) *dc.Peer {
	t.Helper()
	p, err := i.Resolve(dctAt(host, dctn), 0x11)
	require.NoError(t, err)
	return p
}

// recorded compares what was recorded, without the dispatcher's place in the numbers of
// requests.
func recorded(t *testing.T, want string) {
	t.Helper()
	require.Equal(t, standin.Expected(want), strings.ReplaceAll(standin.Recorded(), "id=0x100000000000", "id=0x"))
}

func writeOf(id uint64) dc.Request {
	return dc.Request{ID: id, Op: dc.Write, Local: verbs.SGE{Addr: 0x5000, Length: 64, LKey: 9}, Remote: verbs.Remote{Addr: 0x1000, RKey: 5}}
}

func post(t *testing.T, i *dc.Initiator, p *dc.Peer, ids ...uint64) {
	t.Helper()
	var rs []dc.Request
	for _, id := range ids {
		rs = append(rs, writeOf(id))
	}
	n, err := i.Post(p, rs...)
	require.NoError(t, err)
	require.Equal(t, len(ids), n)
}

// ended polls, and tells the requests that have ended.
func ended(t *testing.T, i *dc.Initiator) []dc.Completion {
	t.Helper()
	cs := make([]dc.Completion, 32)
	for range 10 { // Poll finds nothing while the initiator's own goroutine polls
		n, err := i.Poll(cs)
		require.NoError(t, err)
		if n > 0 {
			return cs[:n]
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// number is how the initiator calls the request at that place of a DCI: its dispatcher has
// the first place in the router of its completion queue.
func number(dci, place uint64) uint64 { return 1<<48 | dci<<32 | place }

func complete(dci, place uint64, status verbs.WCStatus) {
	standin.Complete(uint32(firstQP+dci), number(dci, place), uint32(status))
}

// posts are the requests in what was recorded: how the initiator calls them,
// and for which target of the host.
func posts() []string {
	var out []string
	var id uint64
	for l := range strings.Lines(standin.Recorded()) {
		var ah, dctn, key uint64
		if _, err := fmt.Sscanf(l, "write id=0x%x", &id); err == nil {
			continue
		}
		stream := ""
		if _, s, ok := strings.Cut(strings.TrimSpace(l), "stream="); ok {
			stream = " stream " + s
		}
		if n, _ := fmt.Sscanf(l, "  dc ah=0x%x dctn=0x%x key=0x%x", &ah, &dctn, &key); n == 3 {
			out = append(out, fmt.Sprintf("%d.%d to %x%s", id>>32&0xffff, id&0xffff, dctn, stream))
		}
	}
	return out
}

const backToWork = `
		modify mask=0x1 state=0 mtu=0 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0
		modify mask=0x31 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111
		modify mask=0x101 state=2 mtu=5 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=12 global=1 qkey=0
		modify mask=0x12e01 state=3 mtu=0 port=0 timeout=14 retry=6 rnr=7 reads=16 min_rnr=0 global=0 qkey=0`

const toError = `
		modify mask=0x1 state=6 mtu=0 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0`

func TestHardwareTarget(t *testing.T) {
	pd := standinPD(t)
	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, GID: standinGID, AccessKey: 0x11, Receives: 32})
	require.NoError(t, err)
	b, err := target.Address().MarshalBinary()
	require.NoError(t, err)
	var a dc.Address
	require.NoError(t, a.UnmarshalBinary(b))
	require.Equal(t, dc.Address{GID: standinGID.GID, MTU: verbs.MTU4096, QPN: firstQP, Generation: a.Generation, Hardware: true}, a)
	require.NotZero(t, a.Generation)
	recorded(t, `
		mlx5dv_query_device mask=0x1880
		mlx5dv_create_qp type=0xff mask=0x1 ops=0 cap=0,0,0,0,0 srq=1
		  mlx5 mask=0x2 dc_type=1 key=`+fmt.Sprintf("%#x", 0x11^a.Generation)+`
		modify mask=0x39 state=1 mtu=0 port=1 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0x11111111
		modify mask=0x8181 state=2 mtu=5 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=12 global=1 qkey=0`)

	recv, err := target.NewRecvBatch(2)
	require.NoError(t, err)
	recv.Recv(7, verbs.SGE{Addr: 0x6000, Length: 64, LKey: 3})
	recv.Recv(8, verbs.SGE{Addr: 0x7000, Length: 64, LKey: 3})
	_, err = recv.Post()
	require.NoError(t, err)
	recorded(t, `
		recv id=0x7 lkey=0x3 addr=0x6000 length=64
		recv id=0x8 lkey=0x3 addr=0x7000 length=64`)
	imm := uint32(77)
	standin.Receive(firstQP, 7, 5, nil)
	standin.Receive(firstQP, 8, 64, &imm)
	rs := make([]dc.Received, 4)
	n, err := target.Wait(context.Background(), rs)
	require.NoError(t, err)
	require.Equal(t, []dc.Received{{ID: 7, Len: 5}, {ID: 8, Len: 64, Imm: 77, HasImm: true}}, rs[:n])
	require.Zero(t, target.Stats())
	n, err = target.Poll(rs)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, target.Close())
	require.NoError(t, target.Close())
	_, err = target.Poll(rs)
	require.ErrorIs(t, err, dc.ErrClosed)
	recorded(t, "destroy")
}

// TestHardwareOperations: what a DCI is made for, and all requests as they are
// posted.
func TestHardwareOperations(t *testing.T) {
	pd := standinPD(t)
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: standinGID, Contexts: 1, MaxInline: 16, Masked: true})
	require.NoError(t, err)
	require.True(t, i.Hardware())
	require.Equal(t, 1, i.QueuePairs())
	recorded(t, `
		mlx5dv_query_device mask=0x1880
		mlx5dv_create_qp type=0xff mask=0x41 ops=0x7f cap=128,0,2,0,16 srq=0
		  mlx5 mask=0xe dc_type=2 streams=2^3 errored=2^3 ops=0x8`+strings.TrimPrefix(backToWork, `
		modify mask=0x1 state=0 mtu=0 port=0 timeout=0 retry=0 rnr=0 reads=0 min_rnr=0 global=0 qkey=0`))

	p := resolveDCT(t, i, 0xa1, 0x77)
	recorded(t, "")
	local, word := verbs.SGE{Addr: 0x5000, Length: 8, LKey: 9}, verbs.Remote{Addr: 0x1000, RKey: 5}
	rs := []dc.Request{
		{ID: 101, Op: dc.Send, Local: local, Flags: verbs.Solicited},
		{ID: 102, Op: dc.SendImm, Local: local, Imm: 3},
		{ID: 103, Op: dc.Write, Local: local, Remote: word},
		{ID: 104, Op: dc.WriteImm, Local: local, Remote: word, Imm: 4},
		{ID: 105, Op: dc.Read, Local: local, Remote: word},
		{ID: 106, Op: dc.FetchAdd, Local: local, Remote: word, Value: 5},
		{ID: 107, Op: dc.CmpSwap, Local: local, Remote: word, Compare: 6, Value: 7, Flags: verbs.Fence},
		{ID: 108, Op: dc.MaskedCmpSwap, Local: local, Remote: word, Compare: 1, CompareMask: 2, Value: 3, Mask: 4},
		{ID: 109, Op: dc.MaskedFetchAdd, Local: local, Remote: word, Value: 1, Mask: 0x80},
	}
	n, err := i.Post(p, rs...)
	require.NoError(t, err)
	require.Equal(t, len(rs), n)
	const dct = "\n\t\t  dc ah=0xa1 dctn=0x77 key=0xff11 stream=1"
	const sge = "\n\t\t  sge lkey=0x9 addr=0x5000 length=8"
	const vector = "000000000000ff11800000775000c000" + "00000000bbbbbbbbbbbb004040300000" + "00000000000000000000ffff0a0000a1"
	recorded(t, `
		create_ah global=1 gid=..a1 index=3 hops=64 port=1 dlid=0
		mlx5dv_init_obj type=0x20
		start
		send id=0x0 flags=0x6`+dct+sge+`
		send_imm id=0x1 flags=0x2 imm=0x3`+dct+sge+`
		write id=0x2 flags=0x2 rkey=0x5 addr=0x1000`+dct+sge+`
		write_imm id=0x3 flags=0x2 rkey=0x5 addr=0x1000 imm=0x4`+dct+sge+`
		read id=0x4 flags=0x2 rkey=0x5 addr=0x1000`+dct+sge+`
		fetch_add id=0x5 flags=0x2 rkey=0x5 addr=0x1000 add=5`+dct+sge+`
		cmp_swap id=0x6 flags=0x3 rkey=0x5 addr=0x1000 compare=6 swap=7`+dct+sge+`
		raw id=0x7 flags=0x2 `+"09000014004711080000010800000000"+vector+"00000000000010000000000500000000"+
		"00000000000000030000000000000001"+"00000000000000040000000000000002"+"00000008000000090000000000005000"+`
		raw id=0x8 flags=0x2 `+"09000015004711070000010800000000"+vector+"00000000000010000000000500000000"+
		"00000000000000010000000000000080"+"00000008000000090000000000005000"+`
		complete`)

	for k := range rs {
		complete(0, uint64(k), verbs.WCSuccess)
	}
	for k, c := range ended(t, i) {
		require.Equal(t, dc.Completion{ID: rs[k].ID, Peer: p, Op: rs[k].Op}, c)
	}
	s := i.Stats()
	require.Equal(t, dc.Stats{Attaches: 1, Hits: uint64(len(rs))}, s)

	mr, err := pd.AllocMR(64, verbs.MRConfig{})
	require.NoError(t, err)
	defer mr.Close()
	inline := mr.SGE(0, copy(mr.Bytes(), "in the request"))
	_, err = i.Post(p, dc.Request{Op: dc.WriteImm, Flags: verbs.Inline, Local: inline, Remote: word, Imm: 1})
	require.NoError(t, err)
	recorded(t, `
		start
		write_imm id=0x9 flags=0xa rkey=0x5 addr=0x1000 imm=0x1`+dct+`
		  inline "in the request"
		complete`)
	complete(0, 9, verbs.WCSuccess)
	require.Len(t, ended(t, i), 1)

	inline.Length = 17
	for _, bad := range []dc.Request{
		{Op: dc.Send, Flags: verbs.Inline, Local: inline},
		{Op: dc.Read, Flags: verbs.Inline, Local: local, Remote: word},
		{Op: 99},
	} {
		n, err = i.Post(p, bad)
		require.ErrorIs(t, err, verbs.ErrAttributes)
		require.Zero(t, n)
	}
	_, err = i.Post(p, dc.Request{Op: dc.MaskedFetchAdd, Local: local, Remote: verbs.Remote{Addr: 0x1001}})
	require.ErrorIs(t, err, verbs.ErrRange)
	recorded(t, "")
	require.NoError(t, i.Close())
	require.NoError(t, i.Close())
	recorded(t, "destroy\n\t\tdestroy_ah")
	_, err = i.Post(p, rs...)
	require.ErrorIs(t, err, dc.ErrClosed)
}

// TestHardwarePlaces: a target keeps its DCI while it has requests there, and
// the next one goes where there is least to do.
func TestHardwarePlaces(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 4, Quota: 2, Streams: -1})
	a, b, c := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb), resolveDCT(t, i, 2, 0xc)
	post(t, i, a, 1, 2)
	post(t, i, b, 3)
	post(t, i, a, 4)
	require.Equal(t, []string{"0.0 to a", "0.1 to a", "1.0 to b", "0.2 to a"}, posts())
	complete(1, 0, verbs.WCSuccess)
	require.Len(t, ended(t, i), 1)
	// b has nothing under way, so it belongs nowhere; c shares its place.
	post(t, i, c, 5, 6, 7)
	require.Equal(t, []string{"1.1 to c", "1.2 to c", "1.3 to c"}, posts())
	// Both DCIs have three requests; a and c have one each, b comes to the
	// first. There is room for one of its requests, the others wait, and so do
	// those of a that come later; then they take turns of two.
	post(t, i, b, 8, 9, 10, 11)
	require.Equal(t, []string{"0.3 to b"}, posts())
	post(t, i, a, 12, 13, 14)
	require.Empty(t, posts())
	for place := range uint64(3) {
		complete(0, place, verbs.WCSuccess)
	}
	require.Len(t, ended(t, i), 3)
	require.Equal(t, []string{"0.4 to b", "0.5 to b", "0.6 to a"}, posts())
	for place := range uint64(4) {
		complete(0, 3+place, verbs.WCSuccess)
	}
	ids := []uint64{}
	for _, e := range ended(t, i) {
		ids = append(ids, e.ID)
	}
	require.Equal(t, []uint64{8, 9, 10, 12}, ids)
	require.Equal(t, []string{"0.7 to b", "0.8 to a", "0.9 to a"}, posts())
}

// TestHardwareStreams: targets have streams of their own as far as there are,
// and an old request keeps its place in the ring however many of other streams
// have completed.
func TestHardwareStreams(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 3, Streams: 2})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb)
	post(t, i, a, 1)
	post(t, i, b, 2, 3)
	require.Equal(t, []string{"0.0 to a stream 1", "0.1 to b stream 2", "0.2 to b stream 2"}, posts())
	complete(0, 1, verbs.WCSuccess)
	complete(0, 2, verbs.WCSuccess)
	require.Len(t, ended(t, i), 2)
	post(t, i, b, 4)
	require.Empty(t, posts(), "it would overwrite the first")
	complete(0, 0, verbs.WCSuccess)
	require.Len(t, ended(t, i), 1)
	require.Equal(t, []string{"0.3 to b stream 2"}, posts())
}

func TestHardwareRefusals(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	software := dctAt(1, 0xa)
	software.Hardware = false
	_, err := i.Resolve(software, 0)
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	small := dctAt(1, 0xa)
	small.MTU = verbs.MTU1024
	_, err = i.Resolve(small, 0)
	require.ErrorIs(t, err, verbs.ErrAttributes)

	a := resolveDCT(t, i, 1, 0xa)
	standin.Refuse("create_ah", syscall.EHOSTUNREACH)
	_, err = i.Post(a, writeOf(1))
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	standin.Refuse("complete", syscall.EIO)
	_, err = i.Post(a, writeOf(2))
	require.ErrorIs(t, err, syscall.EIO)
	require.Zero(t, i.Stats().Live)
	post(t, i, a, 1)
	_, err = i.Post(a, dc.Request{Op: dc.MaskedCmpSwap})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	complete(0, 0, verbs.WCSuccess)
	require.Len(t, ended(t, i), 1)

}

// TestHardwareMissing: a device of mlx5 may lack the transport.
func TestHardwareMissing(t *testing.T) {
	pd := standinPD(t)
	standin.Refuse("mlx5dv_create_qp", syscall.EOPNOTSUPP)
	_, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: standinGID, Backend: dc.Hardware})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	standin.Refuse("mlx5dv_create_qp", syscall.EOPNOTSUPP)
	_, err = dc.NewTarget(dc.TargetConfig{PD: pd, GID: standinGID, Backend: dc.Hardware})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	_, err = dc.NewTarget(dc.TargetConfig{PD: pd, GID: standinGID, Backend: 9})
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// TestHardwareLimits: no more streams than the device has, nor more of them in
// error.
func TestHardwareLimits(t *testing.T) {
	pd := standinPD(t)
	cfg := dc.InitiatorConfig{PD: pd, GID: standinGID, Contexts: 1, Depth: 16, Streams: 32}
	i, err := dc.NewInitiator(cfg)
	require.NoError(t, err)
	require.Contains(t, standin.Recorded(), "cap=32,0,1,0,0 srq=0\n  mlx5 mask=0xa dc_type=2 streams=2^5 errored=2^4")
	require.NoError(t, i.Close())
	for _, bad := range []int{128, 3} {
		cfg.Streams = bad
		_, err = dc.NewInitiator(cfg)
		require.ErrorIs(t, err, verbs.ErrAttributes)
	}
	cfg.Streams = -1
	i, err = dc.NewInitiator(cfg)
	require.NoError(t, err)
	require.Contains(t, standin.Recorded(), "cap=16,0,1,0,0 srq=0\n  mlx5 mask=0x2 dc_type=2\n")
	require.NoError(t, i.Close())
}

// TestHardwareQueueFull: MaxPending requests of a target wait, no more.
func TestHardwareQueueFull(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 2, MaxPending: 3})
	p := resolveDCT(t, i, 1, 0xa)
	rs := make([]dc.Request, 6)
	for k := range rs {
		rs[k] = writeOf(uint64(k))
	}
	n, err := i.Post(p, rs...)
	require.ErrorIs(t, err, dc.ErrQueueFull)
	require.Equal(t, 5, n)
	n, err = i.Post(p, rs[5])
	require.ErrorIs(t, err, dc.ErrQueueFull)
	require.Zero(t, n)
	for k := range uint64(5) {
		complete(0, k, verbs.WCSuccess)
		cs := ended(t, i)
		require.Len(t, cs, 1)
		require.Equal(t, k, cs[0].ID)
	}
	require.Len(t, posts(), 5)
	post(t, i, p, 5)
}

// TestHardwareForget: peers of one port share an address handle, which goes with
// the last of them.
func TestHardwareForget(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 1, 0xb)
	post(t, i, a, 1)
	post(t, i, b, 2)
	require.ErrorIs(t, i.Forget(a), dc.ErrInUse)
	require.ErrorIs(t, i.Detach(a), dc.ErrInUse)
	complete(0, 0, verbs.WCSuccess)
	complete(0, 1, verbs.WCSuccess)
	require.Len(t, ended(t, i), 2)
	standin.Recorded()
	require.NoError(t, i.Detach(a))
	require.NoError(t, i.Forget(a))
	recorded(t, "")
	require.ErrorIs(t, i.Attach(context.Background(), a), dc.ErrClosed)
	require.ErrorIs(t, i.Forget(a), dc.ErrClosed)
	_, err := i.Post(a, writeOf(3))
	require.ErrorIs(t, err, dc.ErrClosed)
	require.NoError(t, i.Forget(b))
	recorded(t, "destroy_ah")
	c := resolveDCT(t, i, 1, 0xa)
	require.NotSame(t, a, c)
	require.NoError(t, i.Attach(context.Background(), c))
	recorded(t, "create_ah global=1 gid=..01 index=3 hops=64 port=1 dlid=0")
	standin.Complete(firstQP, number(0, 2), uint32(verbs.WCSuccess))
	cs := make([]dc.Completion, 1)
	n, polled, err := i.PostPoll(c, cs, 0, writeOf(4))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, polled)
	require.EqualValues(t, 4, cs[0].ID)
	require.Equal(t, []string{"0.2 to a stream 1"}, posts())
}

func TestHardwareWait(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
	post(t, i, resolveDCT(t, i, 1, 0xa), 1)
	complete(0, 0, verbs.WCSuccess)
	n, err := i.Wait(context.Background(), make([]dc.Completion, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	// The stand-in has no completion events: a parked goroutine stays parked.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err = i.Wait(ctx, make([]dc.Completion, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got := make(chan error)
	go func() {
		_, err := i.Wait(context.Background(), make([]dc.Completion, 1))
		got <- err
	}()
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, i.Close())
	require.ErrorIs(t, <-got, dc.ErrClosed)
}

func TestHardwareWarmPathDoesNotAllocate(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 2})
	p := resolveDCT(t, i, 1, 0xa)
	var cs [1]dc.Completion
	place := uint64(0)
	turn := func() {
		if _, err := i.Post(p, writeOf(1)); err != nil {
			t.Fatal(err)
		}
		complete(0, place, verbs.WCSuccess)
		place++
		if n, err := i.Poll(cs[:]); n != 1 || err != nil || cs[0].Err != nil {
			t.Fatal(n, err, cs[0].Err)
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(200, turn))
}
