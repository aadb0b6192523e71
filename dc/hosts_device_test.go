//go:build linux

package dc_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
)

// threeHosts returns this host's end, and starts those others that the test
// needs, if an earlier one left them dead.
func threeHosts(t testing.TB, needed ...int) *host {
	t.Helper()
	lab.RequireHosts(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, n := range needed {
		if _, err := lab.Host(n).Exec(ctx, "true"); err != nil {
			require.NoError(t, lab.Host(n).Start(ctx))
		}
	}
	warmCM(t)
	lab.NoLeftovers(t)
	return hostAt(t, lab.Require(t, 1)[0])
}

func (h *host) writeTo(id uint64, r record) dc.Request {
	return dc.Request{ID: id, Op: dc.Write, Local: h.mr.SGE(0, 64), Remote: r.at}
}

// TestHostsTargetProgramRestarts on its host, under the same address.
func TestHostsTargetProgramRestarts(t *testing.T) {
	a := threeHosts(t, 1)
	const port = 7481
	first := remoteTarget(t, 1, port)
	i := a.initiator(t, dc.InitiatorConfig{AckTimeout: 4 * time.Millisecond, ConnectTimeout: 10 * time.Second})
	p, err := i.Resolve(first.addr, helperKey)
	require.NoError(t, err)
	this := first.addr
	this.Generation = first.generation
	only, err := i.Resolve(this, helperKey)
	require.NoError(t, err)
	do(t, i, p, a.writeTo(1, first))
	do(t, i, only, a.writeTo(2, first))
	endTarget(t, 1, port)
	second := remoteTarget(t, 1, port)
	require.NotEqual(t, first.generation, second.generation)
	for _, c := range []struct {
		p    *dc.Peer
		errs [2]error
	}{{p, [2]error{dc.ErrSession, nil}}, {only, [2]error{dc.ErrSession, dc.ErrRefused}}} {
		for n, want := range c.errs {
			start := time.Now()
			_, err := i.Post(c.p, a.writeTo(uint64(n), second))
			require.NoError(t, err)
			got := wait(t, i, 1)[0].Err
			t.Logf("after %v: %v", time.Since(start).Round(time.Millisecond), got)
			require.ErrorIs(t, got, want)
		}
	}
	t.Logf("%+v", i.Stats())
	endTarget(t, 1, port)
}

// TestHostsTargetDies while requests are under way to it: they fail in bounded
// time, and those for a target on another host notice nothing. When the host is
// back, with a new target at the same service, the old address works again.
func TestHostsTargetDies(t *testing.T) {
	a := threeHosts(t, 1, 2)
	const port = 7480
	const connectTimeout = 2 * time.Second
	victim, other := remoteTarget(t, 1, port), remoteTarget(t, 2, port)
	// A dead target shows after seven times the first: late, so that a wait for
	// it is seen.
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: 260 * time.Millisecond, ConnectTimeout: connectTimeout})
	pv, err := i.Resolve(victim.addr, helperKey)
	require.NoError(t, err)
	po, err := i.Resolve(other.addr, helperKey)
	require.NoError(t, err)
	do(t, i, pv, a.writeTo(1, victim))
	do(t, i, po, a.writeTo(2, other))

	var lost []dc.Completion
	var lostAt []time.Duration
	start := time.Now()
	// each does requests to the other target for a time, and returns how long
	// they took, in order of size.
	each := func(until func() bool) (took []time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		for !until() {
			begin := time.Now()
			_, err := i.Post(po, a.writeTo(3, other))
			require.NoError(t, err)
			for done := false; !done; {
				var cs [1]dc.Completion
				_, err := i.Wait(ctx, cs[:])
				require.NoError(t, err)
				if done = cs[0].Peer == po; done {
					require.NoError(t, cs[0].Err)
				} else {
					lost, lostAt = append(lost, cs[0]), append(lostAt, time.Since(start))
				}
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took
	}
	before := each(func() bool { return time.Since(start) > time.Second })

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, lab.Host(1).Kill(ctx))
	start = time.Now()
	const requests = 8
	for n := range uint64(requests) {
		_, err := i.Post(pv, a.writeTo(10+n, victim))
		require.NoError(t, err)
	}
	after := each(func() bool { return len(lost) == requests })
	for k, c := range lost {
		require.ErrorIs(t, c.Err, dc.ErrSession)
		require.EqualValues(t, 10+k, c.ID)
	}
	t.Logf("requests to the dead host failed after %v to %v", lostAt[0].Round(time.Millisecond), lostAt[requests-1].Round(time.Millisecond))
	middle := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	t.Logf("the other target: %d requests, median %v, at most %v; then %d, median %v, at most %v",
		len(before), middle(before), before[len(before)-1], len(after), middle(after), after[len(after)-1])
	require.Greater(t, lostAt[0], time.Second, "it was there to wait for")
	require.Less(t, lostAt[requests-1], 12*time.Second)
	require.Less(t, after[len(after)-1], lostAt[0]/2, "nobody waited for the dead one")

	lost, lostAt, start = nil, nil, time.Now()
	_, err = i.Post(pv, a.writeTo(20, victim))
	require.NoError(t, err)
	connecting := each(func() bool { return len(lost) == 1 })
	require.ErrorIs(t, lost[0].Err, dc.ErrUnreachable)
	require.Less(t, lostAt[0], connectTimeout+time.Second)
	require.Less(t, connecting[len(connecting)-1], connectTimeout/2)

	// The machine may have become slower meanwhile, so the other target is measured once more.
	start = time.Now()
	behind := each(func() bool { return time.Since(start) > time.Second })
	t.Logf("beside a connect: %d requests, median %v; behind it %d, median %v", len(connecting), middle(connecting), len(behind), middle(behind))
	usual := max(middle(before), middle(behind))
	require.Less(t, middle(after), 3*usual)
	require.Less(t, middle(connecting), 3*usual)

	endTarget(t, 2, port)
	if testing.Short() {
		return
	}
	require.NoError(t, lab.Host(1).Start(ctx))
	again := remoteTarget(t, 1, port)
	require.NotEqual(t, victim.generation, again.generation)
	do(t, i, pv, a.writeTo(30, again))
	s := i.Stats()
	t.Logf("%+v", s)
	require.EqualValues(t, 3, s.Attaches, "the other session is the first one still")
	endTarget(t, 1, port)
}

// TestHostsInitiatorDies: the target gets its responder context back, and gives
// it to the initiator that waits for it.
func TestHostsInitiatorDies(t *testing.T) {
	a := threeHosts(t, 2)
	const lease = 1500 * time.Millisecond
	target := a.target(t, dc.TargetConfig{AccessKey: helperKey, Responders: 1, Lease: lease})
	l, err := net.Listen("tcp", netip.AddrPortFrom(lab.Addrs()[0], 0).String())
	require.NoError(t, err)
	defer l.Close()
	begin := func(host int) net.Conn {
		helper(t, host, "initiator "+l.Addr().String())
		conn, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
		return conn
	}
	tell := func(conn net.Conn) {
		_, err = conn.Write(recordOf(target, a.mr.Region().At(0)))
		require.NoError(t, err)
	}
	attached := func(conn net.Conn) {
		_, err := io.ReadFull(conn, make([]byte, 1))
		require.NoError(t, err)
	}
	victim, next := begin(2), begin(0)
	tell(victim)
	attached(victim)
	require.EqualValues(t, 1, target.Stats().Live)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, lab.Host(2).Kill(ctx))
	killed := time.Now()
	tell(next)
	// An initiator waits for it, so it may be taken back before the lease is over.
	require.Eventually(t, func() bool { s := target.Stats(); return s.Expired+s.Reclaimed == 1 }, testTimeout, 10*time.Millisecond)
	expired := time.Since(killed)
	attached(next)
	t.Logf("taken back after %v, the next initiator served after %v; %+v", expired.Round(time.Millisecond),
		time.Since(killed).Round(time.Millisecond), target.Stats())
	require.Less(t, expired, lease+time.Second)
	require.EqualValues(t, 2, target.Stats().Attaches)
}
