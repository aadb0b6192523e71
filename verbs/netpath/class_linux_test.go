package netpath

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a/ports/1/gids/0": "zero\n", "a/ports/1/gids/1": "one\n", "a/ports/1/state": "4: ACTIVE\n", "b": "", "file": "x"} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	before, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	c := infiniband(dir)
	read := func(name string) string {
		b, err := fs.ReadFile(c, name)
		require.NoError(t, err)
		return string(b)
	}
	for range 2 {
		zero, err := fs.ReadFile(c, "a/ports/1/gids/0")
		require.NoError(t, err)
		require.Equal(t, "one\n", read("a/ports/1/gids/1"))
		require.Equal(t, "4: ACTIVE\n", read("a/ports/1/state"))
		require.Equal(t, "zero\n", string(zero), "what is read later leaves it alone")
		require.Equal(t, "x", read("file"))
		require.Empty(t, read("b"))
		for _, name := range []string{"a/ports/1/gids/2", "a/ports/2/gids/0", "none"} {
			_, err = fs.ReadFile(c, name)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, name)
			require.Equal(t, "one\n", read("a/ports/1/gids/1"), "after %s", name)
		}
		_, err = fs.ReadFile(c, "a/ports")
		require.ErrorIs(t, err, syscall.EISDIR)
	}
	require.Equal(t, "one\n", read("a/ports/1/gids/1"))
	require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")))
	require.Equal(t, "zero\n", read("a/ports/1/gids/0"), "the folder is open")
	// A device goes while its table is read.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "c")))
	_, err = fs.ReadFile(c, "a/ports/1/gids/1")
	require.ErrorIs(t, err, fs.ErrNotExist)
	c.close()
	c.close()
	after, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.Len(t, after, len(before), "nothing is left open")
}
