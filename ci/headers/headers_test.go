package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTarget(t *testing.T) {
	got, err := parseTarget("trixie/arm64")
	require.NoError(t, err)
	require.Equal(t, target{"trixie", "arm64"}, got)
	for _, bad := range []string{"", "trixie", "/arm64", "trixie/", "trixie/vax"} {
		_, err := parseTarget(bad)
		require.Error(t, err, bad)
	}
	for _, s := range usual {
		_, err := parseTarget(s)
		require.NoError(t, err)
	}
}

func TestRDMACoreVersion(t *testing.T) {
	dir := t.TempDir()
	_, err := rdmaCore(dir)
	require.Error(t, err)
	require.NoError(t, os.Symlink("libibverbs.so.1.14.56.1", filepath.Join(dir, "libibverbs.so.1")))
	v, err := rdmaCore(dir)
	require.NoError(t, err)
	require.Equal(t, "56.1", v)
}

// What the host is need not be built for once more.
func TestHostIsLeftOut(t *testing.T) {
	twelve := "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n"
	require.Equal(t, "bookworm/"+runtime.GOARCH, host(twelve))
	require.Empty(t, host("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"))
	require.Empty(t, host(""))
	require.Equal(t, []string{"trixie/amd64", "sid/amd64", "trixie/arm64"}, without(usual, "bookworm/amd64"))
	require.Equal(t, usual, without(usual, ""))
	require.Len(t, usual, 4)
}
