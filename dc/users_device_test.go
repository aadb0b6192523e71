//go:build linux

package dc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// TestReply: the receiver of a message reaches its sender.
func TestReply(t *testing.T) {
	a, b := newHosts(t)
	inbox := a.target(t, dc.TargetConfig{AccessKey: 5})
	i := a.initiator(t, dc.InitiatorConfig{ReplyTo: inbox.Address()})
	server := b.target(t, dc.TargetConfig{})
	answers := b.initiator(t, dc.InitiatorConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	receive := func(at *dc.Target, h *host, off int) dc.Received {
		recv, err := at.NewRecvBatch(1)
		require.NoError(t, err)
		recv.Recv(1, h.mr.SGE(off, 64))
		_, err = recv.Post()
		require.NoError(t, err)
		var rs [1]dc.Received
		_, err = at.Wait(ctx, rs[:])
		require.NoError(t, err)
		require.NoError(t, rs[0].Err)
		return rs[0]
	}
	copy(a.mr.Bytes(), "ask")
	go i.Do(ctx, resolve(t, i, server, 0), dc.Request{Op: dc.Send, Local: a.mr.SGE(0, 3)})
	got := receive(server, b, 4096)
	require.NotNil(t, got.ReplyTo)
	require.Equal(t, inbox.Address(), *got.ReplyTo)
	back, err := answers.Resolve(*got.ReplyTo, 5)
	require.NoError(t, err)
	go answers.Do(ctx, back, dc.Request{Op: dc.Send, Local: b.mr.SGE(4096, 3)})
	require.Nil(t, receive(inbox, a, 8192).ReplyTo, "it has no target")
	require.Equal(t, "ask", string(a.mr.Bytes()[8192:][:3]))
}

// TestQuietAndFlush: no completions, and all is there after Flush. Lists gather
// and scatter.
func TestQuietAndFlush(t *testing.T) { onBackEnds(t, quietAndFlush) }

func quietAndFlush(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{MaxSGE: 2, Depth: 8})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	copy(a.mr.Bytes(), "scatter")
	copy(a.mr.Bytes()[100:], "gather")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var rs []dc.Request
	for k := range 30 {
		r := a.write(1, b, 4096+64*k)
		r.Quiet = true
		rs = append(rs, r)
	}
	rs = append(rs, dc.Request{Quiet: true, Op: dc.Write, List: []verbs.SGE{a.mr.SGE(0, 7), a.mr.SGE(100, 6)}, Remote: b.mr.Region().At(0)},
		dc.Request{Quiet: true, Op: dc.Read, List: []verbs.SGE{a.mr.SGE(200, 6), a.mr.SGE(300, 7)}, Remote: b.mr.Region().At(0)})
	n, err := i.Post(p, rs...)
	require.NoError(t, err)
	require.Equal(t, len(rs), n)
	require.NoError(t, i.Flush(ctx, p))
	require.Equal(t, "scattergather", string(b.mr.Bytes()[:13]))
	require.Equal(t, "scatte", string(a.mr.Bytes()[200:206]))
	require.Equal(t, "rgather", string(a.mr.Bytes()[300:307]))
	n, err = i.Poll(make([]dc.Completion, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	want := dc.PeerStats{Posted: 32, Ended: 32, Attaches: 1, Attached: true, Waits: 1, Waited: p.Stats().Waited}
	if i.Hardware() {
		want.Attached, want.Waits = false, 0 // nothing is under way, and there were DCIs
	}
	require.Equal(t, want, p.Stats())
	bad := a.write(7, b, 0)
	bad.Quiet, bad.Remote.RKey = true, bad.Remote.RKey^0xff00
	_, err = i.Post(p, bad)
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, verbs.WCRemoteAccess, "a failure is told")
	if !i.Hardware() { // which has no sessions
		require.Equal(t, dc.EventSessionLost, (<-i.Events()).Kind)
	}
}

// TestNoReceive: a target without a receive gives its context to others, and gets
// its message when it has one; nothing comes twice or out of order.
func TestNoReceive(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	slow, other := b.target(t, dc.TargetConfig{}), b.target(t, dc.TargetConfig{})
	ps, po := resolve(t, i, slow, 0), resolve(t, i, other, 0)
	var rs []dc.Request
	for k := range 5 {
		a.mr.Bytes()[k] = byte(k)
		rs = append(rs, dc.Request{ID: uint64(k), Op: dc.Send, Local: a.mr.SGE(k, 1)})
	}
	_, err := i.Post(ps, rs...)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	// The slow target may be attached after the other one.
	for n := 0; n < 10 || i.Stats().NotReady == 0; n++ {
		require.NoError(t, i.Do(ctx, po, a.write(1, b, 0)), "a request to the other target, after %d", n)
	}
	recv, err := slow.NewRecvBatch(5)
	require.NoError(t, err)
	for k := range uint64(5) {
		recv.Recv(k, b.mr.SGE(4096+int(k), 1))
	}
	_, err = recv.Post()
	require.NoError(t, err)
	for k, c := range wait(t, i, 5) {
		require.NoError(t, c.Err)
		require.EqualValues(t, k, c.ID)
	}
	require.Equal(t, []byte{0, 1, 2, 3, 4}, b.mr.Bytes()[4096:4101])
	t.Logf("%+v", i.Stats())
}

// TestBadRequestFailsAlone: it is refused by Post, and what others have posted
// goes on.
func TestBadRequestFailsAlone(t *testing.T) { onBackEnds(t, badRequestFailsAlone) }

func badRequestFailsAlone(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	_, err := i.Post(p, a.write(1, b, 0))
	require.NoError(t, err)
	for name, bad := range map[string]dc.Request{
		"misaligned":    {Op: dc.FetchAdd, Local: a.mr.SGE(0, 8), Remote: b.mr.Region().At(4)},
		"short result":  {Op: dc.CmpSwap, Local: a.mr.SGE(0, 4), Remote: b.mr.Region().At(8)},
		"local memory":  {Op: dc.Write, Local: a.mr.SGE(memory, 8), Remote: b.mr.Region().At(0)},
		"remote memory": {Op: dc.Read, Local: a.mr.SGE(0, 8), Remote: b.mr.Region().At(memory + 1)},
		"pieces":        {Op: dc.Write, List: make([]verbs.SGE, 2), Remote: b.mr.Region().At(0)},
	} {
		n, err := i.Post(p, a.write(2, b, 0), bad)
		require.Error(t, err, name)
		require.Zero(t, n, name)
	}
	require.NoError(t, wait(t, i, 1)[0].Err)
	other := a.initiator(t, dc.InitiatorConfig{})
	_, err = other.Post(p, a.write(3, b, 0))
	require.ErrorIs(t, err, verbs.ErrAttributes, "a peer of another initiator")
	require.Error(t, other.Attach(context.Background(), p))
	require.Error(t, other.Forget(p))
}

// TestCanceledAttach leaves nothing behind.
func TestCanceledAttach(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	require.NoError(t, target.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, i.Attach(ctx, p), context.DeadlineExceeded)
	live := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	do(t, i, live, a.write(1, b, 0))
	require.Eventually(t, func() bool { return i.Forget(p) == nil }, testTimeout, 10*time.Millisecond)

	// One that has waited for the context of another one waits no longer.
	i = a.initiator(t, dc.InitiatorConfig{Contexts: 1, ConnectTimeout: time.Hour})
	second := b.target(t, dc.TargetConfig{})
	p, q := resolve(t, i, target, 0), resolve(t, i, second, 0)
	require.NoError(t, second.Close())
	for _, dead := range []*dc.Peer{p, q} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, i.Attach(ctx, dead), context.DeadlineExceeded)
	}
	require.NoError(t, i.Forget(q))
}

// TestFlood: unauthenticated peers that know where the target is, and not its key, send as
// fast as they can. They get no reply, and initiators with the key notice little.
func TestFlood(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{AccessKey: 1})
	i := a.initiator(t, dc.InitiatorConfig{})
	p := resolve(t, i, target, 1)
	do(t, i, p, a.write(1, b, 0))
	cq, err := a.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	defer cq.Close()
	qp, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: cq, GID: a.gid, MaxSendWR: 64})
	require.NoError(t, err)
	defer qp.Close()
	require.NoError(t, qp.Activate())
	at := target.Address()
	ah, err := a.pd.CreateAH(verbs.AHAttr{GID: at.GID, SGIDIndex: a.gid.Index, Port: a.gid.Port})
	require.NoError(t, err)
	defer ah.Close()
	const (
		forged = 10_000
		atOnce = 64
	)
	batch, err := qp.NewBatch(atOnce)
	require.NoError(t, err)
	before := target.Stats()
	begin := time.Now()
	var wcs [16]verbs.WC
	for n := 0; n < forged; n += atOnce {
		for k := range atOnce {
			m := wire.Message{Kind: wire.Connect, MTU: 3, Sender: uint64(n + k), Key: 2, QPN: 5, From: wire.ControlAddress{GID: wire.GID(a.gid.GID), QPN: qp.Num()}}
			if k%2 == 1 { // another sender, it says
				if k%4 == 1 {
					m.From.GID[15]++
				} else {
					m.From.QPN++
				}
				m.Key = 1
			}
			m.Encode(a.mr.Bytes()[65536+256*k:])
			flags := verbs.SendFlags(0)
			if k == atOnce-1 {
				flags = verbs.Signaled
			}
			batch.SendTo(1, flags, verbs.Destination{AH: ah, QPN: at.QPN, QKey: at.QKey}, a.mr.SGE(65536+256*k, wire.MessageLen))
		}
		_, err = batch.Post()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		_, err = cq.Wait(ctx, wcs[:])
		cancel()
		require.NoError(t, err)
		if n%(8*atOnce) == 0 {
			require.NoError(t, i.Detach(p))
			do(t, i, p, a.write(2, b, 0))
		}
	}
	s := target.Stats()
	took := time.Since(begin)
	t.Logf("%d forged packets in %v, %.0f a second: %+v", forged, took, forged/took.Seconds(), s)
	require.Greater(t, s.Refused+s.Malformed, before.Refused+before.Malformed)
	require.EqualValues(t, 1, s.Live)
	require.Zero(t, s.Dropped, "no handle was made for them")
}

// over waits until the device is done with a request, and returns its result.
func over(err error) error {
	var left *verbs.InFlightError
	if !errors.As(err, &left) {
		return err
	}
	<-left.Done()
	return left.Err()
}

// TestDoEndsWithoutReceive: the target has no receive, and never will. The context ends
// the wait, and others are served.
func TestDoEndsWithoutReceive(t *testing.T) { onBackEnds(t, doEndsWithoutReceive) }

func doEndsWithoutReceive(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p, other := resolve(t, i, b.target(t, dc.TargetConfig{}), 0), resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- i.Do(ctx, p, dc.Request{Op: dc.Send, Local: a.mr.SGE(0, 8)}) }()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Error(t, over(err), "which ends the session for the requests behind it too")
	case <-time.After(testTimeout):
		require.NoError(t, i.Close())
		t.Fatal("Do still waits")
	}
	do(t, i, other, a.write(1, b, 0))
	do(t, i, p, a.write(2, b, 0))
}
