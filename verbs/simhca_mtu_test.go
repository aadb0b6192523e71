//go:build simhca && linux && cgo

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What a queue pair tells its peer, and takes at most, is what the netdev of its GID
// carries, although the port has 4096.
func TestSimulatedNetdevMTU(t *testing.T) {
	simulated(t, "mlx5")
	for ip, want := range map[int]verbs.MTU{1500: verbs.MTU1024, 2300: verbs.MTU2048, 9000: verbs.MTU4096, 351: 0} {
		lab.InNamespace(t, ip, func() {
			dev, err := verbs.Open(rig.Ports(t)[0].Name, verbs.DeviceConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			gid, err := dev.FindGID(verbs.GIDQuery{})
			require.NoError(t, err)
			if gid.IfIndex == 0 {
				t.Skip("the device has no netdev")
			}
			mtu, err := dev.LocalMTU(gid)
			if want == 0 {
				require.ErrorIs(t, err, verbs.ErrAttributes)
				require.ErrorContains(t, err, "351 bytes")
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, mtu)
			pd, err := dev.AllocPD()
			require.NoError(t, err)
			defer func() { require.NoError(t, pd.Close()) }()
			cq, err := dev.CreateCQ(verbs.CQConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, cq.Close()) }()
			qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq})
			require.NoError(t, err)
			defer func() { require.NoError(t, qp.Close()) }()
			e, err := qp.Endpoint()
			require.NoError(t, err)
			require.Equal(t, want, e.MTU)
			if want < verbs.MTU4096 {
				require.ErrorIs(t, qp.Connect(e, verbs.ConnectConfig{MTU: want + 1}), verbs.ErrAttributes)
			}
			e.MTU = verbs.MTU4096 // a peer that has more
			require.NoError(t, qp.Connect(e, verbs.ConnectConfig{}))
		})
	}
}
