package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs"
)

// What a program sees on a machine without any RDMA device, or built without
// rdma-core. In the lab there are devices, so this runs on plain hosts.
func TestWithoutDevices(t *testing.T) {
	list, err := verbs.Devices()
	if !cgo.Supported {
		require.ErrorIs(t, err, verbs.ErrUnsupported)
		_, err = verbs.Open("mlx5_0", verbs.DeviceConfig{})
		require.ErrorIs(t, err, verbs.ErrUnsupported)
		require.ErrorContains(t, err, "CGO_ENABLED=1", "it says how to get it")
		return
	}
	require.NoError(t, err)
	if len(list) > 0 {
		t.Skip("this machine has RDMA devices")
	}
	_, err = verbs.Open("mlx5_0", verbs.DeviceConfig{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "this host has none")
	t.Setenv("RDMA_DEVICE", "")
	_, err = verbs.OpenDefault(verbs.DeviceConfig{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "this host has none")
}
