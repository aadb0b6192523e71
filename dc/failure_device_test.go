//go:build linux

package dc_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

func (h *host) write(id uint64, to *host, off int) dc.Request {
	return dc.Request{ID: id, Op: dc.Write, Local: h.mr.SGE(0, 64), Remote: to.mr.Region().At(uint64(off))}
}

// TestOperations: all of them, and the receives say under which session they
// came.
func TestOperations(t *testing.T) { onBackEnds(t, operations) }

func operations(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	recv, err := target.NewRecvBatch(3)
	require.NoError(t, err)
	for n := range 3 {
		recv.Recv(uint64(100+n), b.mr.SGE(8192+64*n, 64))
	}
	_, err = recv.Post()
	require.NoError(t, err)
	_, err = i.Post(p, dc.Request{Op: 99})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	word := b.mr.Region().At(512)
	copy(a.mr.Bytes(), "hello")
	do(t, i, p,
		dc.Request{ID: 1, Op: dc.Send, Local: a.mr.SGE(0, 5)},
		dc.Request{ID: 2, Op: dc.SendImm, Local: a.mr.SGE(0, 5), Imm: 77},
		dc.Request{ID: 3, Op: dc.WriteImm, Local: a.mr.SGE(0, 5), Remote: b.mr.Region().At(0), Imm: 78},
		dc.Request{ID: 4, Op: dc.FetchAdd, Local: a.mr.SGE(1024, 8), Remote: word, Value: 5},
		dc.Request{ID: 5, Op: dc.CmpSwap, Local: a.mr.SGE(1032, 8), Remote: word, Compare: 5, Value: 9},
		dc.Request{ID: 6, Op: dc.Read, Local: a.mr.SGE(1040, 8), Remote: word})
	require.EqualValues(t, 0, verbs.Uint64(a.mr.Bytes(), 1024))
	require.EqualValues(t, 5, verbs.Uint64(a.mr.Bytes(), 1032))
	require.EqualValues(t, 9, verbs.Uint64(a.mr.Bytes(), 1040))
	require.Equal(t, "hello", string(b.mr.Bytes()[:5]))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var got []dc.Received
	for len(got) < 3 {
		var rs [4]dc.Received
		n, err := target.Wait(ctx, rs[:])
		require.NoError(t, err)
		got = append(got, rs[:n]...)
	}
	for n, imm := range []uint32{0, 77, 78} {
		require.NoError(t, got[n].Err)
		require.EqualValues(t, 100+n, got[n].ID)
		require.Equal(t, imm, got[n].Imm)
		require.Equal(t, i.Hardware(), got[n].Session == 0)
		require.Equal(t, got[0].Session, got[n].Session)
	}
}

func TestWarmPathDoesNotAllocate(t *testing.T) { onBackEnds(t, warmPathDoesNotAllocate) }

func warmPathDoesNotAllocate(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	do(t, i, p, a.write(1, b, 0))
	var cs [4]dc.Completion
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := i.Post(p, a.write(2, b, 0)); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := i.PollSpin(cs[:], 100)
			if err != nil || n > 0 && cs[0].Err != nil {
				t.Fatal(err, cs[0].Err)
			}
			if n > 0 {
				return
			}
		}
	})
	require.Zero(t, allocs)
	require.EqualValues(t, 1, i.Stats().Attaches)
}

func TestWrongAccessKey(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	target := b.target(t, dc.TargetConfig{AccessKey: 1})
	p := resolve(t, i, target, 2)
	_, err := i.Post(p, a.write(1, b, 0), a.write(2, b, 0))
	require.NoError(t, err)
	for _, c := range wait(t, i, 2) {
		require.ErrorIs(t, c.Err, dc.ErrAccessKey)
	}
	do(t, i, resolve(t, i, target, 1), a.write(3, b, 0))
	require.NotZero(t, target.Stats().Refused)
}

// TestWrongRKey: a request that the target's device refuses fails alone, with
// those behind it, and the next one works.
func TestWrongRKey(t *testing.T) { onBackEnds(t, wrongRKey) }

func wrongRKey(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	bad := a.write(1, b, 0)
	bad.Remote.RKey ^= 0xff00
	_, err := i.Post(p, bad, a.write(2, b, 0))
	require.NoError(t, err)
	cs := wait(t, i, 2)
	require.ErrorIs(t, cs[0].Err, verbs.WCRemoteAccess)
	require.NotErrorIs(t, cs[0].Err, dc.ErrSession)
	require.ErrorIs(t, cs[1].Err, dc.ErrSession)
	do(t, i, p, a.write(3, b, 0))
}

// TestWrongLKey: the memory of a reply, or of a later part of a message, may be looked
// at when something has been carried out. What says that it was not must be right.
func TestWrongLKey(t *testing.T) { onBackEnds(t, wrongLKey) }

func wrongLKey(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, MaxSGE: 2})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	region := b.mr.Region()
	bad := a.mr.SGE(0, 8)
	bad.LKey ^= 0xff00
	copy(a.mr.Bytes(), "something")
	clear(b.mr.Bytes()[:16384])
	for name, r := range map[string]dc.Request{
		"atomic":            {Op: dc.FetchAdd, Local: bad, Remote: region.At(0), Value: 1},
		"write, last piece": {Op: dc.Write, List: []verbs.SGE{a.mr.SGE(0, 8192), bad}, Remote: region.At(4096)},
	} {
		_, err := i.Post(p, r)
		require.NoError(t, err)
		c := wait(t, i, 1)[0]
		require.Error(t, c.Err, name)
		nothing := verbs.Uint64(b.mr.Bytes(), int(r.Remote.Addr-region.At(0).Addr)) == 0
		t.Logf("%s: nothing was carried out: %v: %v", name, nothing, c.Err)
		require.True(t, nothing || errors.Is(c.Err, dc.ErrSession), "%s: %v", name, c.Err)
		do(t, i, p, a.write(3, b, 16384))
	}
}

// TestTargetDies while attached: its requests fail, other targets notice
// nothing.
func TestTargetDies(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: 4 * time.Millisecond, ConnectTimeout: 300 * time.Millisecond})
	victim, other := b.target(t, dc.TargetConfig{}), b.target(t, dc.TargetConfig{})
	pv, po := resolve(t, i, victim, 0), resolve(t, i, other, 0)
	do(t, i, pv, a.write(1, b, 0))
	do(t, i, po, a.write(2, b, 0))
	require.NoError(t, victim.Close())
	_, err := i.Post(pv, a.write(3, b, 0))
	require.NoError(t, err)
	do(t, i, po, a.write(4, b, 0))
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrSession)
	_, err = i.Post(pv, a.write(5, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrUnreachable)
	for _, kind := range []dc.EventKind{dc.EventSessionLost, dc.EventUnreachable} {
		e := <-i.Events()
		require.Equal(t, kind, e.Kind)
		require.Same(t, pv, e.Peer)
		require.ErrorIs(t, e.Err, map[dc.EventKind]error{dc.EventSessionLost: dc.ErrSession, dc.EventUnreachable: dc.ErrUnreachable}[kind])
	}
	require.Empty(t, i.Events())
	do(t, i, po, a.write(6, b, 0))
	require.EqualValues(t, 1, other.Stats().Attaches)
}

// TestInitiatorFallsSilent: the target takes its responder contexts back. The lease
// is longer than a busy machine stands still.
func TestInitiatorFallsSilent(t *testing.T) {
	const lease = 3 * time.Second
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Responders: 1, Lease: lease})
	i := a.initiator(t, dc.InitiatorConfig{})
	do(t, i, resolve(t, i, target, 0), a.write(1, b, 0))
	time.Sleep(2 * lease)
	require.EqualValues(t, 1, target.Stats().Live, "signs of life keep it")
	for _, dev := range []string{"h0", "h1"} {
		require.NoError(t, lab.Impair(dev, lab.Impairment{Loss: 1}))
	}
	require.Eventually(t, func() bool { return target.Stats().Live == 0 }, 5*lease, 20*time.Millisecond)
	for _, dev := range []string{"h0", "h1"} {
		require.NoError(t, lab.Clear(dev))
	}
	require.EqualValues(t, 1, target.Stats().Expired)
	// The old session is refused, and a new one made.
	require.Eventually(t, func() bool { return i.Stats().Live == 0 }, time.Minute, 20*time.Millisecond)
	do(t, i, resolve(t, i, target, 0), a.write(2, b, 0))
}

// TestStorm: many initiators at few responder contexts all get their turn.
func TestStorm(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Responders: 2})
	const initiators, each = 6, 30
	var all sync.WaitGroup
	for n := range initiators {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Quota: 4})
		p := resolve(t, i, target, 0)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			var cs [1]dc.Completion
			for k := range each {
				if _, err := i.Post(p, a.write(uint64(k), b, 4096*n)); err != nil {
					t.Error(err)
					return
				}
				if _, err := i.Wait(ctx, cs[:]); err != nil || cs[0].Err != nil {
					t.Errorf("initiator %d request %d: %v %v", n, k, err, cs[0].Err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%+v", target.Stats())
	require.NotZero(t, target.Stats().Busy)
}

// TestMalformed messages on the control queue is counted and does no harm.
func TestMalformed(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{})
	i := a.initiator(t, dc.InitiatorConfig{})
	cq, err := a.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	defer cq.Close()
	qp, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, GID: a.gid})
	require.NoError(t, err)
	defer qp.Close()
	require.NoError(t, qp.Activate())
	at := target.Address()
	ah, err := a.pd.CreateAH(verbs.AHAttr{GID: at.GID, SGIDIndex: a.gid.Index, Port: a.gid.Port})
	require.NoError(t, err)
	defer ah.Close()
	batch, err := qp.NewBatch(1)
	require.NoError(t, err)
	for n := range 20 {
		batch.SendTo(1, verbs.Signaled, verbs.Destination{AH: ah, QPN: at.QPN, QKey: at.QKey}, a.mr.SGE(200*n, 147+n%3))
		_, err = batch.Post()
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return target.Stats().Malformed == 20 }, testTimeout, 5*time.Millisecond)
	do(t, i, resolve(t, i, target, 0), a.write(1, b, 0))
}

// TestLoss of every tenth packet, in both directions.
func TestLoss(t *testing.T) {
	a, b := newHosts(t)
	// With 4 ms one run of some 200 beside other guests had eight packets unanswered.
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: 16 * time.Millisecond})
	var peers []*dc.Peer
	for range 4 {
		peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{Responders: 2, Lease: 5 * time.Second}), 0))
	}
	lab.ImpairWire(t, lab.Impairment{Loss: 0.1})
	for n := range 40 {
		do(t, i, peers[n%len(peers)], a.write(uint64(n), b, 0))
	}
	t.Logf("%+v", i.Stats())
}

// TestCloseRacesPost: every call ends, nothing crashes.
func TestCloseRacesPost(t *testing.T) { onBackEnds(t, closeRacesPost) }

func closeRacesPost(t *testing.T, a, b *host) {
	target := b.target(t, dc.TargetConfig{})
	for range 10 {
		i, err := dc.NewInitiator(dc.InitiatorConfig{PD: a.pd, GID: a.gid, Backend: a.backend, Contexts: 2})
		require.NoError(t, err)
		p, err := i.Resolve(target.Address(), 0)
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			for {
				if _, err := i.Post(p, a.write(1, b, 0)); err != nil {
					require.NotErrorIs(t, err, verbs.ErrAttributes)
					if _, err := i.Poll(make([]dc.Completion, 1)); err != nil {
						return
					}
				}
			}
		})
		all.Go(func() {
			var cs [8]dc.Completion
			for {
				if _, err := i.Wait(context.Background(), cs[:]); err != nil {
					return
				}
			}
		})
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, i.Close())
		all.Wait()
		require.NoError(t, i.Close())
	}
}
