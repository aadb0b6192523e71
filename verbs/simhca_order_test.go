//go:build simhca && linux && cgo

package verbs_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/experimental"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A request with Fence waits for the READ before it, however it is posted; without,
// a device may carry it out first, and the simulated one often does.
func TestSimulatedFence(t *testing.T) {
	simulated(t, "latereads")
	for name, cfg := range map[string]verbs.QPConfig{"plain": {}, "extended": {Extended: true}, "masked": {Ops: verbs.OpMasked}} {
		a, b := rig.NewPair(t, cfg, verbs.CQConfig{}, verbs.ConnectConfig{})
		batch := a.Batch(t, 2)
		word := b.MR.Region().At(64)
		requests := map[string]func(verbs.SendFlags){
			"WRITE":     func(f verbs.SendFlags) { batch.Write(2, verbs.Signaled|f, word, a.MR.SGE(64, 8)) },
			"FETCH_ADD": func(f verbs.SendFlags) { batch.FetchAdd(2, verbs.Signaled|f, word, 1, a.MR.SGE(128, 8)) },
		}
		if cfg.Ops == verbs.OpMasked {
			requests["masked FETCH_ADD"] = func(f verbs.SendFlags) {
				batch.Add(verbs.WR{ID: 2, Flags: verbs.Signaled | f, Op: verbs.WRMaskedFetchAdd, Remote: word, Value: 1, Local: []verbs.SGE{a.MR.SGE(128, 8)}})
			}
		}
		for what, add := range requests {
			late := map[verbs.SendFlags]int{}
			for n := 0; n < 40 || n < 10_000 && late[0] == 0; n++ {
				for _, fence := range []verbs.SendFlags{0, verbs.Fence} {
					require.NoError(t, b.MR.Store64(64, 41))
					require.NoError(t, a.MR.Store64(64, 42))
					batch.Read(1, verbs.Signaled, word, a.MR.SGE(0, 8))
					add(fence)
					a.Do(t, batch, 2)
					if v := verbs.Uint64(a.MR.Bytes(), 0); v != 41 {
						require.EqualValues(t, 42, v)
						late[fence]++
					}
					require.EqualValues(t, 42, verbs.Uint64(b.MR.Bytes(), 64))
				}
			}
			require.NotZero(t, late[0], "%s, %s", name, what)
			require.Zero(t, late[verbs.Fence], "%s, %s", name, what)
		}
	}
}

// The bytes of a WRITE arrive by cache lines, in any order, and so do those of a READ:
// another queue pair's READ of two lines finds one of them old and the other new. A line is
// never seen in parts, and what is posted behind the WRITE finds all of it.
func TestSimulatedTorn(t *testing.T) {
	simulated(t, "torn")
	const lines, at = 2, 64
	writer, far := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	reader := rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
	other, err := far.PD.CreateQP(verbs.QPConfig{SendCQ: far.CQ, GID: rig.Ports(t)[1].GID})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	to, err := other.Endpoint()
	require.NoError(t, err)
	require.NoError(t, reader.QP.Connect(to, verbs.ConnectConfig{}))
	require.NoError(t, other.Connect(reader.Endpoint(t), verbs.ConnectConfig{}))
	write, read := writer.Batch(t, 3), reader.Batch(t, 1)
	number := func(s *rig.Side, from int) (n [lines]uint64) {
		for k := range n {
			line := s.MR.Bytes()[from+64*k:][:64]
			n[k] = verbs.Uint64(line, 0)
			for w := range 8 {
				require.Equal(t, n[k], verbs.Uint64(line, 8*w), "a line in parts")
			}
		}
		return n
	}
	orders := map[bool]int{} // of the lines that were new: the first one, or the second
	for v := uint64(1); v < 2000 || v < 100_000 && len(orders) < 2; v++ {
		for w := range 8 * lines {
			binary.NativeEndian.PutUint64(writer.MR.Bytes()[8*w:], v)
		}
		write.Write(1, 0, far.MR.Region().At(at), writer.MR.SGE(0, 64*lines))
		write.FetchAdd(2, 0, far.MR.Region().At(0), 1, writer.MR.SGE(512, 8))
		write.Read(3, verbs.Signaled, far.MR.Region().At(at), writer.MR.SGE(1024, 64*lines))
		_, err := write.Post()
		require.NoError(t, err)
		read.Read(1, verbs.Signaled, far.MR.Region().At(at), reader.MR.SGE(0, 64*lines))
		reader.Do(t, read, 1)
		if n := number(reader, 0); n[0] != n[1] {
			require.ElementsMatch(t, []uint64{v - 1, v}, n[:])
			orders[n[0] == v]++
		}
		require.NoError(t, writer.Wait(t, 1)[0].Err())
		require.Equal(t, [lines]uint64{v, v}, number(writer, 1024))
		require.Equal(t, v-1, verbs.Uint64(writer.MR.Bytes(), 512))
	}
	t.Logf("the first line was new %d times, the second %d", orders[true], orders[false])
	require.Len(t, orders, 2)
}

// While a stream waits for its target, the others go on as long as there is room; the
// room of a DCI with streams is free in the order in which it was taken.
func TestSimulatedStreamsRoom(t *testing.T) {
	simulated(t, "mlx5")
	const asked = 8
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{Type: verbs.DCI, Streams: 2, MaxSendWR: asked, MaxInline: 32}, verbs.CQConfig{})
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	require.NoError(t, driver.ActivateWith(a.QP, verbs.ConnectConfig{}))
	size := uint64(a.QP.MaxSendWR())
	require.GreaterOrEqual(t, size, uint64(asked))
	srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srq.Close()) })
	target, err := b.PD.CreateQP(verbs.QPConfig{Type: verbs.DCT, SendCQ: b.CQ, SRQ: srq, GID: p[1].GID})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	require.NoError(t, target.Activate())
	ah, err := a.PD.CreateAH(verbs.AHAttr{GID: p[1].GID.GID, SGIDIndex: p[0].GID.Index, Port: 1, DLID: b.Endpoint(t).LID})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	to := verbs.Target{AH: ah, QPN: target.Num()}
	batch := a.Batch(t, 1)
	write := func(id uint64) error {
		to.Stream = 2
		batch.SetTarget(to)
		batch.Write(id, verbs.Signaled, b.MR.Region().At(8*id), a.MR.SGE(int(8*id), 8))
		_, err := batch.Post()
		return err
	}
	rig.Fill(a.MR.Bytes()[:4096], 1)
	for round := range 20 {
		to.Stream = 1
		batch.SetTarget(to)
		batch.SendInline(0, verbs.Signaled, []byte{byte(round)}) // there is no receive yet
		_, err = batch.Post()
		require.NoError(t, err)
		for id := range size - 1 {
			require.NoError(t, write(1+id))
			wc := a.Wait(t, 1)[0]
			require.NoError(t, wc.Err())
			require.Equal(t, 1+id, wc.ID())
		}
		require.ErrorIs(t, write(size), verbs.ErrQueueFull)
		recv, err := srq.NewRecvBatch(1)
		require.NoError(t, err)
		recv.Recv(uint64(round), b.MR.SGE(8192, 64))
		_, err = recv.Post()
		require.NoError(t, err)
		require.NoError(t, a.Wait(t, 1)[0].Err())
		require.NoError(t, b.Wait(t, 1)[0].Err())
		require.Equal(t, byte(round), b.MR.Bytes()[8192])
	}
	require.Equal(t, a.MR.Bytes()[8:8*size], b.MR.Bytes()[8:8*size])
}

// Timers and counts of retries reach the device as they were asked for. A machine that
// stands still makes a try late; a timer that is too long does so with all.
func TestSimulatedYieldPolicy(t *testing.T) {
	simulated(t, "mlx5")
	patient := verbs.ConnectConfig{AckTimeout: 4 * time.Millisecond, Retries: 3, RNRTimer: 20 * time.Millisecond, RNRRetries: 1}
	fails := func(status verbs.WCStatus, least time.Duration, post func(a, b *rig.Side, batch *verbs.Batch)) {
		took := time.Hour
		for try := 0; try < 5 && took >= time.Second; try++ {
			a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, patient)
			batch := a.Batch(t, 1)
			post(a, b, batch)
			begin := time.Now()
			_, err := batch.Post()
			require.NoError(t, err)
			require.ErrorIs(t, a.Wait(t, 1)[0].Err(), status)
			took = time.Since(begin)
			require.GreaterOrEqual(t, took, least)
		}
		require.Less(t, took, time.Second)
	}
	// Twice 20.48 ms, and four times 4.2 ms.
	fails(verbs.WCRNRRetryExceeded, 40*time.Millisecond, func(a, _ *rig.Side, batch *verbs.Batch) {
		batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	})
	fails(verbs.WCRetryExceeded, 16*time.Millisecond, func(a, b *rig.Side, batch *verbs.Batch) {
		require.NoError(t, b.QP.ToError())
		batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	})
}

// Raw entries complete as they are told to; one that is signaled gives back the room of
// those before it, whatever their numbers are.
func TestSimulatedRaw(t *testing.T) {
	simulated(t, "mlx5")
	a, _ := rig.NewPair(t, verbs.QPConfig{Ops: verbs.OpMasked, MaxSendWR: 8}, verbs.CQConfig{}, verbs.ConnectConfig{})
	nop := make([]byte, 16)
	binary.BigEndian.PutUint32(nop[4:], a.QP.Num()<<8|1)
	batch := a.Batch(t, 8)
	for range 10 {
		for range 7 {
			batch.Raw(7, 0, nop)
		}
		batch.Raw(7, verbs.Signaled, nop)
		wc := a.Do(t, batch, 1)[0]
		require.EqualValues(t, 7, wc.ID())
		require.Equal(t, verbs.WCRaw, wc.Opcode())
	}
}

// Datagrams of EFA: to the right queue pair by the right key, with the room for a
// header in front, and their sender's address where no handle names it.
func TestSimulatedEFADatagrams(t *testing.T) {
	simulated(t, "efa")
	d, err := verbs.Open("efa_0", verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	f, err := d.EFA()
	require.NoError(t, err)
	gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
	require.NoError(t, err)
	side := func(key uint32) *rig.Side {
		s := &rig.Side{Dev: d}
		s.PD, err = d.AllocPD()
		require.NoError(t, err)
		fields := verbs.FieldsStandard
		if f.Sender {
			fields |= experimental.FieldSender
		}
		s.CQ, err = d.CreateCQ(verbs.CQConfig{Fields: fields})
		require.NoError(t, err)
		s.MR, err = s.PD.AllocMR(rig.BufSize, verbs.MRConfig{})
		require.NoError(t, err)
		s.QP, err = s.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: s.CQ, GID: gid, QKey: key, Extended: true, MaxInline: 16})
		require.NoError(t, err)
		require.NoError(t, s.QP.Activate())
		t.Cleanup(func() {
			for _, c := range []interface{ Close() error }{s.QP, s.MR, s.CQ, s.PD} {
				require.NoError(t, c.Close())
			}
		})
		return s
	}
	a, b := side(0x1234), side(0x5678)
	ah, err := a.PD.CreateAH(verbs.AHAttr{GID: gid.GID, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	b.Recv(t, 4, 128)
	batch := a.Batch(t, 4)
	copy(a.MR.Bytes(), "hello")
	to := verbs.Destination{AH: ah, QPN: b.QP.Num(), QKey: 0x5678}
	wrong := to
	wrong.QKey = 0x1234
	batch.SendTo(1, verbs.Signaled, wrong, a.MR.SGE(0, 3)) // no completion reports it
	batch.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRSendImm, Imm: 77, To: new(to), Local: []verbs.SGE{a.MR.SGE(0, 5)}})
	a.Do(t, batch, 2)
	receive := func() verbs.WCEx {
		var wcs [2]verbs.WCEx
		for end := time.Now().Add(rig.Timeout); time.Now().Before(end); {
			n, err := b.CQ.PollEx(wcs[:])
			require.NoError(t, err)
			if n > 0 {
				require.Equal(t, 1, n)
				require.NoError(t, wcs[0].Err())
				return wcs[0]
			}
		}
		t.Fatal("nothing was received")
		return wcs[0]
	}
	wc := receive()
	imm, ok := wc.Imm()
	require.True(t, ok)
	require.EqualValues(t, 77, imm)
	require.Equal(t, 45, wc.Len())
	require.Equal(t, "hello", string(b.MR.Bytes()[128*wc.ID()+40:][:5]))
	require.Equal(t, a.QP.Num(), wc.SrcQP())
	if !f.Sender {
		return
	}
	require.Equal(t, gid.GID, experimental.Sender(&wc))
	back, err := experimental.CreateAHFromWCEx(b.PD, &wc, b.MR.Bytes()[128*wc.ID():], 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, back.Close()) })
	batch.SendTo(3, verbs.Signaled, to, a.MR.SGE(0, 5))
	a.Do(t, batch, 1)
	wc = receive()
	number, err := experimental.AHNumber(back)
	require.NoError(t, err)
	require.Equal(t, number, wc.SLID())
	require.Equal(t, verbs.GID{}, experimental.Sender(&wc), "there is a handle now")
}

// A post to a queue that is full of requests under way is refused, and does them no
// harm.
func TestSimulatedFullQueue(t *testing.T) {
	simulated(t, "mlx5")
	p := rig.Ports(t)
	for _, cfg := range []verbs.QPConfig{{MaxSendWR: 16}, {MaxSendWR: 16, Extended: true}, {MaxSendWR: 16, Ops: verbs.OpMasked}} {
		a, b := rig.NewPair(t, cfg, verbs.CQConfig{}, verbs.ConnectConfig{})
		size := a.QP.MaxSendWR()
		rig.Fill(a.MR.Bytes()[:8192], 5)
		full, one := a.Batch(t, size), a.Batch(t, 1)
		require.NoError(t, simhca.Hold(p[0].Name, a.QP.Num(), 20*time.Millisecond))
		for k := range size {
			full.Write(uint64(k), verbs.Signaled, b.MR.Region().At(uint64(64*k)), a.MR.SGE(64*k, 64))
		}
		_, err := full.Post()
		require.NoError(t, err)
		for range 3 {
			one.Send(99, verbs.Signaled, a.MR.SGE(0, 1))
			_, err = one.Post()
			require.ErrorIs(t, err, verbs.ErrQueueFull)
		}
		for k, wc := range a.Wait(t, size) {
			require.NoError(t, wc.Err())
			require.EqualValues(t, k, wc.ID())
			require.Equal(t, verbs.WCWrite, wc.Opcode())
		}
		require.Equal(t, a.MR.Bytes()[:64*size], b.MR.Bytes()[:64*size])
	}
}

// Of a batch that is not full, nothing is posted of what it had in it before.
func TestSimulatedShorterBatch(t *testing.T) {
	simulated(t, "mlx5")
	for _, cfg := range []verbs.QPConfig{{}, {Extended: true}} {
		a, b := rig.NewPair(t, cfg, verbs.CQConfig{}, verbs.ConnectConfig{})
		batch, one := a.Batch(t, 4), a.Batch(t, 1)
		recv, err := b.QP.NewRecvBatch(4)
		require.NoError(t, err)
		for n := 4; n > 0; n-- {
			for k := range n {
				recv.Recv(uint64(10*n+k), b.MR.SGE(64*k, 64))
				batch.Write(uint64(k), verbs.Signaled, b.MR.Region().At(4096), a.MR.SGE(0, 8))
			}
			_, err := recv.Post()
			require.NoError(t, err)
			a.Do(t, batch, n)
			for range n {
				one.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
				a.Do(t, one, 1)
			}
			for k, wc := range b.Wait(t, n) {
				require.NoError(t, wc.Err())
				require.EqualValues(t, 10*n+k, wc.ID())
			}
			for _, s := range []*rig.Side{a, b} {
				got, err := s.CQ.PollSpin(make([]verbs.WC, 1), 1000)
				require.NoError(t, err)
				require.Zero(t, got)
			}
		}
	}
}

// A request that is made to fail has no effect, also where others would pass the READ in
// front of it.
func TestSimulatedFailBehindLateRead(t *testing.T) {
	simulated(t, "latereads")
	p := rig.Ports(t)
	for range 20 {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		require.NoError(t, simhca.Fail(p[0].Name, a.QP.Num(), 1, uint32(verbs.WCRetryExceeded)))
		batch := a.Batch(t, 2)
		batch.Read(1, verbs.Signaled, b.MR.Region().At(64), a.MR.SGE(0, 8))
		batch.FetchAdd(2, verbs.Signaled, b.MR.Region().At(0), 1, a.MR.SGE(64, 8))
		_, err := batch.Post()
		require.NoError(t, err)
		wcs := a.Wait(t, 2)
		require.NoError(t, wcs[0].Err())
		require.ErrorIs(t, wcs[1].Err(), verbs.WCRetryExceeded)
		require.Zero(t, verbs.Uint64(b.MR.Bytes(), 0))
	}
}
