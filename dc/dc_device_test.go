//go:build linux

package dc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const testTimeout = 30 * time.Second

// host is an end of the wire: a device, a domain, memory.
type host struct {
	dev     *verbs.Device
	pd      *verbs.PD
	gid     verbs.GIDEntry
	mr      *verbs.MR
	backend dc.Backend
}

const memory = 1 << 20

// simulated are devices without addresses that stand for the ends of the wire:
// those of $SIMHCA.
var simulated []string

func newHost(t testing.TB, device string, at verbs.GIDQuery) *host {
	t.Helper()
	h := &host{backend: dc.Software}
	var err error
	h.dev, err = verbs.Open(device, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.dev.Close()) })
	h.pd, err = h.dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.pd.Close()) })
	h.gid, err = h.dev.FindGID(at)
	require.NoError(t, err)
	h.mr, err = h.pd.AllocMR(memory, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.mr.Close()) })
	return h
}

func newHosts(t testing.TB) (a, b *host) {
	t.Helper()
	if len(simulated) > 0 {
		return newHost(t, simulated[0], verbs.GIDQuery{Port: 1}), newHost(t, simulated[1], verbs.GIDQuery{Port: 1})
	}
	lab.NoLeftovers(t)
	es := lab.Require(t, 2)
	return hostAt(t, es[0]), hostAt(t, es[1])
}

func hostAt(t testing.TB, e lab.Endpoint) *host {
	t.Helper()
	return newHost(t, e.Device, verbs.GIDQuery{Addr: e.Addr})
}

// onBackEnds runs a test for what both back ends do alike.
func onBackEnds(t *testing.T, test func(t *testing.T, a, b *host)) {
	t.Run("software", func(t *testing.T) {
		a, b := newHosts(t)
		test(t, a, b)
	})
	t.Run("hardware", func(t *testing.T) {
		a, b := newHosts(t)
		if _, err := a.dev.Mlx5(); err != nil {
			t.Skip(err)
		}
		a.backend, b.backend = dc.Hardware, dc.Hardware
		test(t, a, b)
	})
}

func (h *host) target(t testing.TB, cfg dc.TargetConfig) *dc.Target {
	t.Helper()
	cfg.PD, cfg.GID, cfg.Backend = h.pd, h.gid, h.backend
	target, err := dc.NewTarget(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	return target
}

func (h *host) initiator(t testing.TB, cfg dc.InitiatorConfig) *dc.Initiator {
	t.Helper()
	cfg.PD, cfg.GID, cfg.Backend = h.pd, h.gid, h.backend
	i, err := dc.NewInitiator(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return i
}

func resolve(t testing.TB, i *dc.Initiator, target *dc.Target, key uint64) *dc.Peer {
	t.Helper()
	b, err := target.Address().MarshalBinary()
	require.NoError(t, err)
	var a dc.Address
	require.NoError(t, a.UnmarshalBinary(b))
	p, err := i.Resolve(a, key)
	require.NoError(t, err)
	return p
}

// wait takes exactly n completions.
func wait(t testing.TB, i *dc.Initiator, n int) []dc.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	out := make([]dc.Completion, n)
	for got := 0; got < n; {
		m, err := i.Wait(ctx, out[got:])
		require.NoError(t, err, "after %d of %d completions", got, n)
		got += m
	}
	return out
}

func do(t testing.TB, i *dc.Initiator, p *dc.Peer, rs ...dc.Request) {
	t.Helper()
	n, err := i.Post(p, rs...)
	require.NoError(t, err)
	require.Equal(t, len(rs), n)
	for k, c := range wait(t, i, n) {
		require.NoError(t, c.Err)
		require.Equal(t, rs[k].ID, c.ID)
		require.Equal(t, p, c.Peer)
	}
}

// TestSerialInitiator: one initiator context serves one target after another.
// Sessions are closed and opened again, or kept and taken up again.
func TestSerialInitiator(t *testing.T) {
	t.Run("sessions are closed", func(t *testing.T) { serialInitiator(t, closed) })
	t.Run("sessions are kept", func(t *testing.T) { serialInitiator(t, keptFreely) })
}

func serialInitiator(t *testing.T, sessions policy) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, CloseSessions: sessions == closed})
	sessions.set(i)
	const targets, rounds = 3, 4
	var peers []*dc.Peer
	var all []*dc.Target
	for range targets {
		target := b.target(t, dc.TargetConfig{AccessKey: 7, Responders: 2})
		all = append(all, target)
		peers = append(peers, resolve(t, i, target, 7))
	}
	for round := range rounds {
		for n, p := range peers {
			word := []byte(fmt.Sprintf("round %d target %d", round, n))
			copy(a.mr.Bytes(), word)
			at := b.mr.Region().At(uint64(4096 * n))
			do(t, i, p, dc.Request{ID: 1, Op: dc.Write, Local: a.mr.SGE(0, len(word)), Remote: at})
			do(t, i, p, dc.Request{ID: 2, Op: dc.Read, Local: a.mr.SGE(4096, len(word)), Remote: at})
			require.Equal(t, string(word), string(a.mr.Bytes()[4096:][:len(word)]))
		}
	}
	s := i.Stats()
	require.EqualValues(t, targets*rounds, s.Attaches)
	require.EqualValues(t, 1, s.Live)
	require.EqualValues(t, targets*rounds-1, s.Evictions)
	opened, live := 1, targets
	if sessions == closed {
		opened, live = rounds, 2 // the last detach may be under way
	}
	require.EqualValues(t, targets*(rounds-opened), s.Resumes)
	for _, target := range all {
		live -= target.Stats().Live
		require.EqualValues(t, opened, target.Stats().Attaches)
	}
	require.GreaterOrEqual(t, live, 0)
	t.Logf("%+v", s)
}

// policy says what becomes of sessions that an initiator leaves.
type policy int

const (
	kept       policy = iota
	keptFreely        // on any device, and whatever may be late
	closed
)

func (p policy) set(i *dc.Initiator) {
	if p == keptFreely {
		i.KeepFreely()
	}
}
