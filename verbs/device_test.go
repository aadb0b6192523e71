package verbs

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// A device without its file is the usual case in a container.
func TestWhyThereAreNoDevices(t *testing.T) {
	class := fstest.MapFS{
		"abi_version":   {Data: []byte("6\n")},
		"uverbs0/ibdev": {Data: []byte("mlx5_0\n")},
		"uverbs3/ibdev": {Data: []byte("mlx5_3\n")},
	}
	require.Contains(t, whyNoDevices(fstest.MapFS{}, fstest.MapFS{}), "this host has none")
	require.Contains(t, whyNoDevices(class, fstest.MapFS{}), "the kernel has mlx5_0, but /dev/infiniband/uverbs0 is missing")
	require.Contains(t, whyNoDevices(class, fstest.MapFS{"uverbs0": {}}), "mlx5_3, but /dev/infiniband/uverbs3 is missing")
	require.Contains(t, whyNoDevices(class, fstest.MapFS{"uverbs0": {}, "uverbs3": {}}), "this host has none")
}
