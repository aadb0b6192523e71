//go:build simhca && linux && cgo

package verbs_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// srdPair are two SRD queue pairs, and the way from the first to the second.
func srdPair(t *testing.T) (a, b srd, to verbs.Target) {
	t.Helper()
	a, b = srdSide(t), srdSide(t)
	ah, err := a.PD.CreateAH(verbs.AHAttr{GID: b.gid.GID, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	back, err := b.PD.CreateAH(verbs.AHAttr{GID: a.gid.GID, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, back.Close()) })
	return a, b, verbs.Target{AH: ah, QPN: b.QP.Num(), QKey: verbs.DefaultQKey}
}

// What a region is to be made for, and the device has not, is named.
func TestSimulatedRightsOfRegions(t *testing.T) {
	simulated(t, "efa")
	a, _, _ := srdPair(t)
	_, err := a.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteAtomic})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	require.ErrorContains(t, err, "no atomics")
	f, err := a.Dev.EFA()
	require.NoError(t, err)
	if f.Write || !strings.Contains(os.Getenv("SIMHCA"), "nowrite") {
		return // the device has it, or its library does not know
	}
	_, err = a.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteWrite})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	require.ErrorContains(t, err, "no RDMA WRITE")
}

// WRITE is there where device and libefa have it, from rdma-core 50 on, and refused
// otherwise before anything is posted.
func TestSimulatedSRDWrite(t *testing.T) {
	simulated(t, "efa")
	a, b, to := srdPair(t)
	f, err := a.Dev.EFA()
	require.NoError(t, err)
	t.Logf("%+v", f)
	require.True(t, f.Read)
	batch := a.Batch(t, 8)
	mr, err := b.PD.AllocMR(8192, verbs.MRConfig{Access: verbs.RemoteWrite | verbs.RemoteRead})
	if strings.Contains(os.Getenv("SIMHCA"), "nowrite") {
		require.False(t, f.Write)
		require.Error(t, err, "EFA has no such right then")
	}
	if !f.Write {
		if err == nil {
			require.NoError(t, mr.Close())
		}
		batch.SetTarget(to)
		batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.ErrorIs(t, err, verbs.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	b.Recv(t, 4, 64)
	for k := range 4 {
		a.MR.Bytes()[64*k] = byte(k + 1)
		batch.SetTarget(to)
		batch.Write(uint64(k), verbs.Signaled, mr.Region().At(uint64(64*k)), a.MR.SGE(64*k, 64))
		batch.WriteImm(uint64(4+k), verbs.Signaled, uint32(k), mr.Region().At(uint64(4096+64*k)), a.MR.SGE(64*k, 64))
	}
	a.Do(t, batch, 8)
	seen := map[uint32]bool{}
	for _, wc := range b.Wait(t, 4) {
		require.NoError(t, wc.Err())
		imm, ok := wc.Imm()
		require.True(t, ok)
		seen[imm] = true
		require.Equal(t, 64, wc.Len())
	}
	require.Len(t, seen, 4)
	for k := range 4 {
		require.Equal(t, byte(k+1), mr.Bytes()[64*k])
		require.Equal(t, byte(k+1), mr.Bytes()[4096+64*k])
	}
}

// What EFA does not know is refused; what goes wrong at the other end has a status,
// and the queue pair lives on.
func TestSimulatedSRDRefusals(t *testing.T) {
	simulated(t, "efa")
	a, b, to := srdPair(t)
	batch := a.Batch(t, 2)
	local, remote := a.MR.SGE(0, 8), b.MR.Region().At(0)
	for name, c := range map[string]struct {
		add  func()
		want error
	}{
		"no target":   {func() { batch.Send(1, verbs.Signaled, local) }, verbs.ErrAttributes},
		"fence":       {func() { batch.SetTarget(to); batch.Send(1, verbs.Signaled|verbs.Fence, local) }, verbs.ErrUnsupported},
		"solicited":   {func() { batch.SetTarget(to); batch.Send(1, verbs.Signaled|verbs.Solicited, local) }, verbs.ErrUnsupported},
		"fetch_add":   {func() { batch.SetTarget(to); batch.FetchAdd(1, verbs.Signaled, remote, 1, local) }, verbs.ErrUnsupported},
		"two targets": {func() { batch.Send(1, verbs.Signaled, local); batch.SetTarget(to); batch.Send(2, 0, local) }, verbs.ErrAttributes},
	} {
		c.add()
		n, err := batch.Post()
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, n, name)
		batch.Reset()
	}
	post := func(add func()) verbs.WC {
		batch.SetTarget(to)
		add()
		_, err := batch.Post()
		require.NoError(t, err)
		return a.Wait(t, 1)[0]
	}
	key := remote
	key.RKey ^= 0x100
	wc := post(func() { batch.Read(1, verbs.Signaled, key, local) })
	require.ErrorContains(t, wc.Err(), "vendor error 0x7", "EFA's bad address; libefa has no status of its own for it")
	wc = post(func() { batch.Send(2, verbs.Signaled, local) })
	require.ErrorIs(t, wc.Err(), verbs.WCRNRRetryExceeded, "there is no receive")
	wrong := to
	wrong.QKey++
	b.Recv(t, 2, 64)
	batch.SetTarget(wrong)
	batch.Send(3, verbs.Signaled, local)
	_, err := batch.Post()
	require.NoError(t, err)
	require.Error(t, a.Wait(t, 1)[0].Err())
	wc = post(func() { batch.Send(4, 0, local) }) // as if signaled: EFA has no others
	require.NoError(t, wc.Err())
	require.NoError(t, b.Wait(t, 1)[0].Err())
	require.Equal(t, verbs.StateRTS, a.QP.State())
}

// sendEight posts eight SENDs that arrive, and returns their batch.
func sendEight(t *testing.T, a, b srd, to verbs.Target) *verbs.Batch {
	t.Helper()
	b.Recv(t, 8, 64)
	batch := a.Batch(t, 8)
	batch.SetTarget(to)
	for k := range uint64(8) {
		batch.Send(k, verbs.Signaled, a.MR.SGE(0, 8))
	}
	_, err := batch.Post()
	require.NoError(t, err)
	return batch
}

// A queue pair in error is empty when Drain says so, and takes nothing.
func TestSimulatedSRDDrain(t *testing.T) {
	simulated(t, "efa")
	a, b, to := srdPair(t)
	batch := sendEight(t, a, b, to)
	ended := 0
	require.NoError(t, a.QP.Drain(t.Context(), func(*verbs.WC) { ended++ }))
	require.Equal(t, 8, ended)
	batch.SetTarget(to)
	batch.Send(9, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.Error(t, err)
}

// A reset would have libefa forget what completed and was not polled, and give back places
// that it has not given: it is refused.
func TestSimulatedSRDReset(t *testing.T) {
	simulated(t, "efa")
	a, b, to := srdPair(t)
	sendEight(t, a, b, to)
	b.Wait(t, 8)
	require.ErrorIs(t, a.QP.ToReset(), verbs.ErrUnsupported)
	require.ErrorIs(t, driver.ModifySteps(a.QP, driver.ResetStep(), driver.InitStep(a.QP)), verbs.ErrUnsupported)
	require.Equal(t, verbs.StateRTS, a.QP.State())
	a.Wait(t, 8)
	require.ErrorIs(t, a.QP.Quiesce(), verbs.ErrUnsupported)
	require.Equal(t, verbs.StateError, a.QP.State())
}

// A fault by choice is its queue pair's: it ends with that, and does not meet another one
// with the same number.
func TestSimulatedFaultsEnd(t *testing.T) {
	simulated(t, "efa")
	a, b, to := srdPair(t)
	b.Recv(t, 1, 64)
	gid := a.gid
	create := func() *verbs.QP {
		q, err := a.PD.CreateQP(verbs.QPConfig{Type: verbs.SRD, SendCQ: a.CQ, GID: gid})
		require.NoError(t, err)
		return q
	}
	first := create()
	require.NoError(t, simhca.Fail("efa_0", first.Num(), 0, uint32(verbs.WCGeneral)))
	require.NoError(t, simhca.Hold("efa_0", first.Num(), time.Hour))
	require.NoError(t, first.Close())
	q := create()
	for q.Num() != first.Num() {
		require.NoError(t, q.Close())
		q = create()
	}
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	require.NoError(t, q.Activate())
	batch, err := q.NewBatch(1)
	require.NoError(t, err)
	batch.SetTarget(to)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.NoError(t, a.Wait(t, 1)[0].Err())
}
