//go:build linux && cgo

package dc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// newTestSoftware is the back end of an initiator with one context, which is attached
// to a peer. Its queue pair is a DCI of the stand-in, that says how it was posted to.
func newTestSoftware(t *testing.T) (_ *software, _ *contextQP, _ *session.Context, _ *Peer, next func()) {
	t.Helper()
	i, h, _ := newTestHardware(t, InitiatorConfig{Depth: 64, Streams: -1})
	core := session.NewInitiator(1, 1, session.Limits{Quota: 64, Hold: time.Second, MaxWait: time.Second, Retransmit: time.Second, ConnectTimeout: time.Second},
		func() uint32 { return 1 })
	s := &software{i: i, core: core, qps: []contextQP{{qp: h.dcis[0].qp, batch: h.dcis[0].batch, ring: newRing(64), mtu: 1024}}}
	p := &Peer{i: i, a: &activity{}}
	s.timer.Init(s.tick, time.Millisecond)
	i.be = s
	t.Cleanup(func() {
		s.timer.Stop()
		i.be = h
	})
	m := s.meet(p)
	core.Enqueue(m, 0, 1)
	core.Received(&wire.Message{Kind: wire.Alive, Sender: 1, MTU: 3}, 1)
	core.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: m.Context().Session.Attempt, Session: 9, MTU: 3, Wait: 60000}, 2)
	x := m.Context()
	core.Joined(x, nil, 3)
	require.True(t, x.Attached())
	core.Actions = nil
	ah, err := i.cfg.PD.CreateAH(verbs.AHAttr{GID: verbs.GID{10: 0xff, 11: 0xff, 15: 1}, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	return s, &s.qps[0], x, p, func() {
		standin.Recorded()
		h.dcis[0].batch.SetTarget(verbs.Target{AH: ah, QPN: 1}) // of the next post
	}
}

// posted has requests posted that waited, and returns for each whether it has a completion.
func (s *software) posted(t *testing.T, x *session.Context, p *Peer, rs ...Request) (out []bool) {
	t.Helper()
	q := &s.qps[0]
	s.i.mu.Lock()
	for k := range rs {
		s.i.fill(q.ring.at(q.ring.tail+uint32(k)), p, &rs[k], nil)
	}
	s.postAll(x, len(rs))
	s.i.mu.Unlock()
	return signaled()
}

func signaled() (out []bool) {
	for l := range strings.Lines(standin.Recorded()) {
		if strings.HasPrefix(l, "write ") {
			out = append(out, strings.Contains(l, "flags=0x2"))
		}
	}
	return out
}

func writes(n int) []Request {
	rs := make([]Request, n)
	for k := range rs {
		rs[k] = Request{ID: uint64(k), Op: Write, Local: verbs.SGE{Length: 64, LKey: 1}}
	}
	return rs
}

func quiet(n int) []Request {
	rs := writes(n)
	for k := range rs {
		rs[k].Quiet = true
	}
	return rs
}

// TestQuietTogether: each request has a completion but for the quiet ones before another,
// which end in its completion; also when one in the middle fails.
func TestQuietTogether(t *testing.T) {
	s, q, x, p, next := newTestSoftware(t)
	i := s.i
	end := func(pos uint32, status verbs.WCStatus) []Completion {
		standin.Complete(q.qp.Num(), i.d.ID(tag(0, pos)), uint32(status))
		cs := make([]Completion, 64)
		n, err := i.Poll(cs)
		require.NoError(t, err)
		return cs[:n]
	}
	some := writes(5)
	some[0].Quiet, some[1].Quiet, some[4].Quiet = true, true, true
	for _, c := range []struct {
		name string
		rs   []Request
		want []int
	}{
		{"one", writes(1), []int{0}},
		{"three", writes(3), []int{0, 1, 2}},
		{"some quiet", some, []int{2, 3, 4}},
		{"all quiet", quiet(6), []int{5}},
	} {
		first := q.ring.tail
		next()
		has := s.posted(t, x, p, c.rs...)
		require.Len(t, has, len(c.rs), c.name)
		var got []Completion
		for k := range has {
			require.Equal(t, slices.Contains(c.want, k), has[k], "%s: %d", c.name, k)
			if has[k] {
				got = append(got, end(first+uint32(k), verbs.WCSuccess)...)
			}
		}
		require.Zero(t, q.ring.len())
		for _, r := range c.rs {
			if r.Quiet {
				continue
			}
			require.Equal(t, Completion{ID: r.ID, Peer: p, Op: Write}, got[0], c.name)
			got = got[1:]
		}
		require.Empty(t, got, c.name)
	}
	next()
	n, err := i.Post(p, quiet(3)...)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []bool{false, false, true}, signaled(), "the same when they did not wait")
	require.Empty(t, end(q.ring.tail-1, verbs.WCSuccess))
	require.Zero(t, q.ring.len())

	// One that fails in the middle: those before it were carried out.
	first := q.ring.tail
	next()
	s.posted(t, x, p, quiet(6)...)
	got := end(first+2, verbs.WCRemoteAccess)
	require.Len(t, got, 1)
	require.ErrorIs(t, got[0].Err, verbs.WCRemoteAccess)
	for k := range uint32(2) { // with the third the context would leave
		got := end(first+3+k, verbs.WCFlushed)
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0].Err, ErrSession)
	}
}

// TestUncovered: when the device does not take the request that has the completion for
// those before it, the session is broken off: otherwise they would never end.
func TestUncovered(t *testing.T) {
	s, q, x, p, _ := newTestSoftware(t)
	took := func(n, of int) {
		rs := quiet(of)
		s.i.mu.Lock()
		defer s.i.mu.Unlock()
		for k := range rs {
			s.i.fill(q.ring.at(q.ring.tail+uint32(k)), p, &rs[k], nil)
		}
		s.add(x, q, of)
		q.batch.Reset()
		q.ring.tail += uint32(n)
		s.core.Posted(x, n, n)
		for k := range of - n { // as the driver does with those that are refused
			e := q.ring.at(q.ring.tail)
			*e = entry{Request: rs[n+k], peer: p, ended: true}
			q.ring.tail++
			s.core.Posted(x, 1, 0)
		}
		s.uncovered(x, q)
	}
	took(10, 10)
	require.True(t, x.Attached(), "the last one has its completion")
	took(0, 3)
	require.True(t, x.Attached())
	took(5, 10)
	require.False(t, x.Attached())
	require.Equal(t, session.ActAbort, s.core.Actions[0].Kind)
	s.core.Actions = nil
}
