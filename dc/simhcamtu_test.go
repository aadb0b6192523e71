//go:build simhca && linux && cgo

package dc_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestSimulatedMTU: each end has the MTU of its netdev, though the port has a larger one,
// and a session that of the smaller end, whichever that is. With hardware an initiator
// refuses a target of another MTU.
func TestSimulatedMTU(t *testing.T) {
	a, b := dcHosts(t)
	if a.gid.IfIndex == 0 {
		t.Skip("the devices have no netdev")
	}
	const n = 9000
	for _, small := range []string{"initiator", "target"} {
		t.Run(small, func(t *testing.T) {
			ends := func(backend dc.Backend) (i *dc.Initiator, target *dc.Target) {
				a.backend, b.backend = backend, backend
				makeInitiator := func() { i = a.initiator(t, dc.InitiatorConfig{Contexts: 1}) }
				makeTarget := func() { target = b.target(t, dc.TargetConfig{}) }
				if small == "target" {
					lab.InNamespace(t, 1500, makeTarget)
					lab.InNamespace(t, 9000, makeInitiator)
				} else {
					lab.InNamespace(t, 9000, makeTarget)
					lab.InNamespace(t, 1500, makeInitiator)
				}
				want := verbs.MTU4096
				if small == "target" {
					want = verbs.MTU1024
				}
				require.Equal(t, want, target.Address().MTU)
				return i, target
			}
			i, target := ends(dc.Software)
			a.mr.Bytes()[n-1] = 7
			do(t, i, resolve(t, i, target, 0), dc.Request{ID: 1, Op: dc.Write, Local: a.mr.SGE(0, n), Remote: b.mr.Region().At(0)})
			require.True(t, bytes.Equal(a.mr.Bytes()[:n], b.mr.Bytes()[:n]))
			mtu, err := i.PathMTU(0)
			require.NoError(t, err)
			require.Equal(t, verbs.MTU1024, mtu)
			at, err := target.Responder(0).Query()
			require.NoError(t, err)
			require.Equal(t, verbs.MTU1024, at.PathMTU)

			i, target = ends(dc.Hardware)
			_, err = i.Resolve(target.Address(), 0)
			require.ErrorIs(t, err, verbs.ErrAttributes)
		})
	}
}
