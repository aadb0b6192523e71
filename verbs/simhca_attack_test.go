//go:build simhca && linux && cgo

package verbs_test

import (
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Objects with requests under way are closed in any order; what is still used is
// refused, and nothing else is.
func TestSimulatedCloseInAnyOrder(t *testing.T) {
	simulated(t, "mlx5")
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	p := rig.Ports(t)
	for range 20 {
		type object struct {
			close func() error
			under []*object
			gone  bool
		}
		var all []*object
		add := func(close func() error, under ...*object) *object {
			o := &object{close: close, under: under}
			all = append(all, o)
			return o
		}
		dev, err := verbs.Open(p[0].Name, verbs.DeviceConfig{})
		require.NoError(t, err)
		device := add(dev.Close)
		pd, err := dev.AllocPD()
		require.NoError(t, err)
		domain := add(pd.Close, device)
		var cqs [3]*verbs.CQ
		var queues [3]*object
		for k := range cqs {
			cqs[k], err = dev.CreateCQ(verbs.CQConfig{})
			require.NoError(t, err)
			queues[k] = add(cqs[k].Close, device)
		}
		srq, err := pd.CreateSRQ(verbs.SRQConfig{MaxWR: 8})
		require.NoError(t, err)
		shared := add(srq.Close, domain)
		mr, err := pd.AllocMR(8192, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
		require.NoError(t, err)
		add(mr.Close, domain)
		var qps [4]*verbs.QP
		for k := range qps {
			s, v := r.IntN(3), r.IntN(3)
			cfg := verbs.QPConfig{SendCQ: cqs[s], RecvCQ: cqs[v], GID: p[0].GID}
			under := []*object{domain, queues[s], queues[v]}
			if k%2 == 1 {
				cfg.SRQ = srq
				under = append(under, shared)
			}
			qps[k], err = pd.CreateQP(cfg)
			require.NoError(t, err)
			add(qps[k].Close, under...)
		}
		for k, q := range qps {
			e, err := qps[k^1].Endpoint()
			require.NoError(t, err)
			require.NoError(t, q.Connect(e, verbs.ConnectConfig{}))
			if r.IntN(2) == 0 {
				require.NoError(t, simhca.Hold(p[0].Name, q.Num(), time.Duration(r.IntN(2000))*time.Microsecond))
			}
			batch, err := q.NewBatch(8)
			require.NoError(t, err)
			for n := range uint64(8) {
				batch.Write(n, verbs.Signaled, mr.Region().At(4096), mr.SGE(0, 64))
			}
			_, err = batch.Post()
			require.NoError(t, err)
		}
		for left := len(all); left > 0; {
			o := all[r.IntN(len(all))]
			if o.gone {
				continue
			}
			used := false
			for _, above := range all {
				for _, u := range above.under {
					used = used || u == o && !above.gone
				}
			}
			if err := o.close(); used {
				require.ErrorIs(t, err, verbs.ErrInUse)
				continue
			} else {
				require.NoError(t, err)
			}
			o.gone = true
			left--
		}
	}
}

// Contexts of one device and of another do not get in each other's way, and a key is
// good in its own protection domain alone.
func TestSimulatedContexts(t *testing.T) {
	simulated(t, "mlx5")
	var all sync.WaitGroup
	pairs := make([][2]*rig.Side, 8)
	for n := range pairs {
		pairs[n][0], pairs[n][1] = rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	}
	for n, pair := range pairs {
		all.Go(func() {
			a, b := pair[0], pair[1]
			batch, err := a.QP.NewBatch(4)
			if err != nil {
				t.Error(err)
				return
			}
			for round := range 50 {
				rig.Fill(a.MR.Bytes()[:4096], uint64(n*1000+round))
				for k := range 4 {
					batch.Write(uint64(k), verbs.Signaled, b.MR.Region().At(uint64(1024*k)), a.MR.SGE(1024*k, 1024))
				}
				if _, err := batch.Post(); err != nil {
					t.Error(err)
					return
				}
				var wcs [4]verbs.WC
				for got := 0; got < 4; {
					m, err := a.CQ.Wait(t.Context(), wcs[got:])
					if err != nil {
						t.Error(err)
						return
					}
					got += m
				}
				if string(a.MR.Bytes()[:4096]) != string(b.MR.Bytes()[:4096]) {
					t.Errorf("pair %d, round %d: other bytes", n, round)
				}
			}
		})
	}
	all.Wait()
	a := pairs[0][0]
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, pairs[1][1].MR.Region().At(0), a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
}

// A device that is taken away: its users are told, everything can be closed, and
// nothing else works. In a program of its own: it does not come back.
func TestSimulatedRemoval(t *testing.T) {
	if os.Getenv("SIMHCA_REMOVE") == "" {
		simulated(t, "mlx5")
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSimulatedRemoval$", "-test.v")
		cmd.Env = append(os.Environ(), "SIMHCA_REMOVE=1", "SIMHCA=mlx5 mlx5")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestSimulatedRemoval")
		return
	}
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: time.Millisecond, Retries: 1})
	batch := a.Batch(t, 2)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	p := rig.Ports(t)
	events := b.Dev.Events(rig.Context(t))
	srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 4})
	require.NoError(t, err)
	window, err := b.PD.AllocWindow(verbs.Window1)
	require.NoError(t, err)
	ah, err := b.PD.CreateAH(verbs.AHAttr{GID: p[0].GID.GID, SGIDIndex: p[1].GID.Index, Port: 1})
	require.NoError(t, err)
	asleep, err := b.Dev.CreateCQ(verbs.CQConfig{}) // no event of it has been asked for
	require.NoError(t, err)
	polled, err := b.Dev.CreateCQ(verbs.CQConfig{PollOnly: true})
	require.NoError(t, err)
	late := b.Batch(t, 1)
	late.Write(1, verbs.Signaled, a.MR.Region().At(0), b.MR.SGE(0, 8))
	require.NoError(t, simhca.Hold(p[1].Name, b.QP.Num(), time.Hour))
	_, err = late.Post()
	require.NoError(t, err)
	waits := make(chan error)
	go func() {
		_, err := b.CQ.Wait(rig.Context(t), make([]verbs.WC, 1))
		waits <- err
	}()
	verbs.Parked(t, "IO wait", "verbs.(*CQ).Wait")
	require.NoError(t, simhca.Remove(p[1].Name))
	told := false
	for e := range events {
		if told = e.Type == verbs.EventDeviceFatal; told {
			break
		}
	}
	require.True(t, told)
	require.ErrorIs(t, <-waits, syscall.EIO, "there is no completion any more, and no event")
	for _, cq := range []*verbs.CQ{b.CQ, asleep} {
		_, err = cq.Wait(rig.Context(t), make([]verbs.WC, 1))
		require.ErrorIs(t, err, syscall.EIO)
	}
	_, err = polled.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, syscall.EIO)
	batch.Write(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRetryExceeded)
	_, err = b.Dev.AllocPD()
	require.Error(t, err)
	_, err = verbs.Open(p[1].Name, verbs.DeviceConfig{})
	require.Error(t, err)
	// All that was on it can be closed, in the usual order.
	require.ErrorIs(t, b.PD.Close(), verbs.ErrInUse)
	for _, c := range []io.Closer{srq, window, ah, asleep, polled} {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	}
}
