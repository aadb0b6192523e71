package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new")
	require.NoError(t, CopyTree(filepath.Join(from, "none"), to))
	require.NoFileExists(t, to)

	require.NoError(t, os.MkdirAll(filepath.Join(from, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "a", "b", "f"), []byte("new"), 0o640))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	require.NoError(t, os.MkdirAll(filepath.Join(to, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(to, "a", "b", "f"), []byte("older"), 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(to, "a", "kept"), nil, 0o644))
	require.NoError(t, CopyTree(from, to))
	b, err := os.ReadFile(filepath.Join(to, "a", "b", "f"))
	require.NoError(t, err)
	require.Equal(t, "new", string(b))
	require.FileExists(t, filepath.Join(to, "a", "kept"))
	require.NoFileExists(t, filepath.Join(to, "link"), "only regular files")

	one := filepath.Join(t.TempDir(), "sub", "one")
	require.NoError(t, CopyTree(filepath.Join(from, "a", "b", "f"), one))
	require.FileExists(t, one)
}
