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

func TestDependents(t *testing.T) {
	const list = `github.com/goverbs/goverbs/cgo	fmt
github.com/goverbs/goverbs/verbs	fmt github.com/goverbs/goverbs/cgo
github.com/goverbs/goverbs/verbs.test	testing github.com/goverbs/goverbs/cgo
github.com/goverbs/goverbs/verbs [github.com/goverbs/goverbs/verbs.test]	github.com/goverbs/goverbs/cgo
github.com/goverbs/goverbs/ci/lab	fmt
github.com/goverbs/goverbs/ci/lab.test	github.com/goverbs/goverbs/cgo
github.com/goverbs/goverbs/ci/vm	github.com/goverbs/goverbs/cgofree
github.com/goverbs/goverbs/ci/vm.test	testing
`
	built, tests := dependents(list)
	require.Equal(t, []string{module + "/cgo", module + "/verbs"}, built)
	require.Equal(t, []string{module + "/verbs", module + "/ci/lab"}, tests)
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
