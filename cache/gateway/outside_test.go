package gateway_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The store of the example compiles in a module of its own, which cannot import internal packages.
func TestStoreOfAnotherModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	for from, to := range map[string]string{"example_test.go": "example_test.go", "../../go.sum": "go.sum"} {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), b, 0o644))
	}
	mod := "module example.com/store\n\ngo 1.26.0\n\nrequire github.com/goverbs/goverbs v0.0.0\n\nreplace github.com/goverbs/goverbs => " + root + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644))
	vet := exec.CommandContext(t.Context(), "go", "vet", ".")
	vet.Dir, vet.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
