package accept

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A socket without a listener is replaced, and nothing else.
func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	_, err = ListenUnix(t.Context(), path)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "it is in use")
	left.SetUnlinkOnClose(false)
	require.NoError(t, left.Close())

	l, err := ListenUnix(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, l.Close())

	require.NoError(t, os.WriteFile(path, []byte("a file"), 0o600))
	_, err = ListenUnix(t.Context(), path)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.FileExists(t, path)
}
