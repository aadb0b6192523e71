//go:build linux

package dc_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// warmCM makes librdmacm open the devices that it keeps.
func warmCM(t testing.TB) {
	t.Helper()
	cm, err := rdmacm.Open(rdmacm.Config{})
	require.NoError(t, err)
	es, err := lab.Endpoints()
	require.NoError(t, err)
	for _, e := range es {
		l, err := cm.Listen(netip.AddrPortFrom(e.Addr, 0).String(), rdmacm.ListenConfig{Type: verbs.UD})
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	require.NoError(t, cm.Close())
}

// TestTargetRestarts under the same address: what was under way fails, what
// comes then goes to the new one, unless the address means the old one only.
func TestTargetRestarts(t *testing.T) {
	lab.Require(t, 2)
	warmCM(t)
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{AckTimeout: 4 * time.Millisecond, ConnectTimeout: 3 * time.Second})
	cfg := dc.TargetConfig{Service: 7473, AccessKey: 3}
	first := b.target(t, cfg)
	p := resolve(t, i, first, 3)
	this := first.Address()
	this.Generation = first.Generation()
	only, err := i.Resolve(this, 3)
	require.NoError(t, err)
	require.NotSame(t, p, only)
	do(t, i, p, a.write(1, b, 0))
	do(t, i, only, a.write(2, b, 0))
	lookups := i.Stats().Lookups // of a host that is slow to reply
	_, err = dc.NewTarget(dc.TargetConfig{PD: b.pd, GID: b.gid, Service: 7473})
	require.Error(t, err, "the port is taken")
	require.NoError(t, first.Close())

	second := b.target(t, cfg)
	require.NotEqual(t, first.Address(), second.Address())
	_, err = i.Post(p, a.write(3, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrSession)
	do(t, i, p, a.write(4, b, 0))
	require.Greater(t, i.Stats().Lookups, lookups)
	require.EqualValues(t, 1, second.Stats().Attaches)
	_, err = i.Post(only, a.write(5, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrSession)
	_, err = i.Post(only, a.write(6, b, 0))
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, i, 1)[0].Err, dc.ErrRefused)
	require.EqualValues(t, 1, second.Stats().Attaches)
	t.Logf("%+v", i.Stats())
	_, err = dc.NewTarget(dc.TargetConfig{PD: b.pd, GID: b.gid, Service: 1, Backend: dc.Hardware})
	require.ErrorIs(t, err, verbs.ErrUnsupported)
}
