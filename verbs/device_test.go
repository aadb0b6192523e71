package verbs

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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

// The error of the device's own file counts, not that of where libibverbs looks then.
func TestFileError(t *testing.T) {
	class := fstest.MapFS{"uverbs0/ibdev": {Data: []byte("rxe0\n")}, "uverbs1/ibdev": {Data: []byte("rxe1\n")}}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "uverbs1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "uverbs0"), nil, 0o600))
	require.ErrorIs(t, fileError(class, dir, "rxe1", syscall.ENOENT), syscall.EISDIR)
	require.Equal(t, syscall.ENOENT, fileError(class, dir, "rxe0", syscall.ENOENT))
	require.Equal(t, syscall.ENOENT, fileError(class, dir, "rxe2", syscall.ENOENT))
	require.ErrorContains(t, openError("rxe1", &fs.PathError{Op: "open", Path: "/dev/infiniband/uverbs1", Err: syscall.EACCES}), "no access to /dev/infiniband")
}
