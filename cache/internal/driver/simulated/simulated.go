// Package simulated is for tests on simulated devices of mlx5.
package simulated

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// Require skips a test unless it has simulated devices of mlx5.
func Require(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(os.Getenv("SIMHCA"), "mlx5") {
		t.Skip(`needs SIMHCA="mlx5,mlx5"`)
	}
}

// PD returns a protection domain on the first device. It closes with the test, which must have left nothing in it by
// then.
func PD(t testing.TB) *verbs.PD {
	t.Helper()
	Require(t)
	dev, err := verbs.Open("mlx5_0", verbs.DeviceConfig{})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pd.Close())
		require.NoError(t, dev.Close())
	})
	return pd
}

// Initiator returns an initiator on a [PD] of its own. It closes with the test.
func Initiator(t testing.TB, contexts int) *dc.Initiator {
	t.Helper()
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: PD(t), Contexts: contexts, Backend: dc.Hardware})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return i
}
