//go:build linux

package dc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestForget: the session goes with the peer, and the same address can be met
// anew.
func TestForget(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	_, err := i.Post(p, a.write(1, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, i.Forget(p), dc.ErrInUse)
	require.NoError(t, wait(t, i, 1)[0].Err)
	require.NoError(t, i.Forget(p))
	require.Eventually(t, func() bool { return target.Stats().Live == 0 }, testTimeout, time.Millisecond)
	require.ErrorIs(t, i.Forget(p), dc.ErrClosed)
	_, err = i.Post(p, a.write(2, b, 0))
	require.ErrorIs(t, err, dc.ErrClosed)
	again := resolve(t, i, target, 0)
	require.NotSame(t, p, again)
	do(t, i, again, a.write(3, b, 0))
	require.EqualValues(t, 2, target.Stats().Attaches)
}

// TestKeyIsOnePeers: resolving the address with another key changes no other
// peer.
func TestKeyIsOnePeers(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{})
	target := b.target(t, dc.TargetConfig{AccessKey: 1})
	p := resolve(t, i, target, 1)
	require.Same(t, p, resolve(t, i, target, 1))
	wrong := resolve(t, i, target, 2)
	require.NotSame(t, p, wrong)
	do(t, i, p, a.write(1, b, 0))
	_, err := i.Post(wrong, a.write(2, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrAccessKey)
	require.NoError(t, i.Detach(p))
	do(t, i, p, a.write(3, b, 0))
}

// TestInlineAndFence, and the READ behind a WRITE of the same words.
func TestInlineAndFence(t *testing.T) { onBackEnds(t, inlineAndFence) }

func inlineAndFence(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{MaxInline: 32})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	at := b.mr.Region().At(0)
	copy(a.mr.Bytes(), "without a key")
	local := a.mr.SGE(0, 13)
	local.LKey ^= 0xff00
	do(t, i, p,
		dc.Request{ID: 1, Op: dc.Write, Flags: verbs.Inline, Local: local, Remote: at},
		dc.Request{ID: 2, Op: dc.Read, Local: a.mr.SGE(4096, 13), Remote: at},
		dc.Request{ID: 3, Op: dc.Write, Flags: verbs.Fence, Local: a.mr.SGE(4096, 13), Remote: b.mr.Region().At(64)})
	require.Equal(t, "without a key", string(b.mr.Bytes()[64:][:13]))
	local.Length = 33
	_, err := i.Post(p, dc.Request{Op: dc.Write, Flags: verbs.Inline, Local: local, Remote: at})
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// TestNoHardware: what only mlx5 has is refused before anything is done.
func TestNoHardware(t *testing.T) {
	a, b := newHosts(t)
	_, err := dc.NewTarget(dc.TargetConfig{PD: b.pd, GID: b.gid, Backend: dc.Hardware})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	for _, cfg := range []dc.InitiatorConfig{{Backend: dc.Hardware}, {Masked: true}} {
		cfg.PD, cfg.GID = a.pd, a.gid
		_, err = dc.NewInitiator(cfg)
		require.ErrorIs(t, err, verbs.ErrUnsupported)
	}
	i := a.initiator(t, dc.InitiatorConfig{})
	require.False(t, i.Hardware())
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	for _, op := range []dc.Op{dc.MaskedCmpSwap, dc.MaskedFetchAdd} {
		n, err := i.Post(p, a.write(1, b, 0), dc.Request{Op: op, Local: a.mr.SGE(0, 8), Remote: b.mr.Region().At(0)})
		require.ErrorIs(t, err, verbs.ErrUnsupported)
		require.Zero(t, n)
	}
	require.Zero(t, i.Stats().Waits, "nothing was posted")
	hw := target.Address()
	hw.Hardware = true
	_, err = i.Resolve(hw, 0)
	require.ErrorIs(t, err, verbs.ErrUnsupported)
}
