//go:build simhca && linux && cgo

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Devices agree on options beyond the specification through the unchanged libmlx5: each
// takes of the peer's offer what it has too, and of an unknown device's nothing.
func TestSimulatedECE(t *testing.T) {
	simulated(t, "mlx5")
	const vendor, options = 0x15b3, 0x30000006
	a, b := rig.NewPair(t, verbs.QPConfig{ECE: true}, verbs.CQConfig{}, verbs.ConnectConfig{})
	for _, s := range []*rig.Side{a, b} {
		taken, err := s.QP.ECE()
		require.NoError(t, err)
		require.Equal(t, verbs.ECE{Vendor: vendor, Options: options}, taken)
	}
	for offer, want := range map[verbs.ECE]uint32{
		{Vendor: vendor, Options: 0x10000004}: 0x10000004, // an older version, and less
		{Vendor: vendor, Options: 0x50000ff2}: 0x30000002, // a newer one, and something else
		{Vendor: 0x1425, Options: 0x30000006}: 0,
		{}:                                    0,
	} {
		qp, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: rig.Ports(t)[0].GID, ECE: true})
		require.NoError(t, err)
		e := b.Endpoint(t)
		e.ECE = offer
		require.NoError(t, qp.Connect(e, verbs.ConnectConfig{}))
		taken, err := qp.ECE()
		require.NoError(t, err)
		require.Equal(t, want, taken.Options, "%+v", offer)
		require.NoError(t, qp.Close())
	}
}
