package main

import (
	"os"
	"path/filepath"
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
	require.Equal(t, []string{"trixie/amd64", "sid/amd64", "trixie/arm64"}, without(usual, "bookworm/amd64"))
	require.Equal(t, usual, without(usual, "/amd64"))
	require.Len(t, usual, 4)
}
