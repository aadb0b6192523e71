//go:build simhca && linux && cgo

package verbs_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Polls with any large number of spins go on until there is a completion.
func TestSimulatedSpins(t *testing.T) {
	simulated(t, "mlx5")
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	batch := a.Batch(t, 1)
	wcs := make([]verbs.WC, 1)
	require.NoError(t, simhca.Hold(rig.Ports(t)[0].Name, a.QP.Num(), 5*time.Millisecond))
	for _, spins := range []int{math.MaxInt32, math.MaxInt32 + 1, 1 << 32, math.MaxInt} {
		batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		_, err := batch.Post()
		require.NoError(t, err)
		n, err := a.CQ.PollSpin(wcs, spins)
		require.NoError(t, err)
		require.Equal(t, 1, n, "%d spins", spins)
		batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		_, n, err = batch.PostPoll(a.CQ, wcs, spins)
		require.NoError(t, err)
		require.Equal(t, 1, n, "%d spins", spins)
	}
}
