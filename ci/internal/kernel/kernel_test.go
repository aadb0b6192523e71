package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMirrorIsTheHosts(t *testing.T) {
	for text, want := range map[string]string{
		"deb http://mirror.example/debian bookworm main\n":                                           "http://mirror.example/debian",
		"# deb http://no.example/debian x\ndeb [signed-by=/k] https://m.example/debian/ trixie main": "https://m.example/debian",
		"Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n":                         "http://mirror.example/debian",
		"deb http://mirror.example/debian-security bookworm-security main\n":                         "",
		"Types: deb\nURIs: http://mirror.example/debian-security\n":                                  "",
		"": "",
	} {
		require.Equal(t, want, findMirror(text), text)
	}
	t.Setenv("LAB_MIRROR", "http://mine.example/debian")
	m, err := mirror()
	require.NoError(t, err)
	require.Equal(t, "http://mine.example/debian", m)
}

func TestUnpackedPackage(t *testing.T) {
	dir := t.TempDir()
	_, err := open(dir, dir)
	require.ErrorContains(t, err, "0 images")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "boot"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "boot", "vmlinuz-6.9-test"), nil, 0o644))
	_, err = open(dir, dir)
	require.ErrorContains(t, err, "no modules of 6.9-test")
	modules := filepath.Join(dir, "usr", "lib", "modules", "6.9-test")
	require.NoError(t, os.MkdirAll(filepath.Join(modules, "kernel"), 0o755))
	tree, err := open(dir, dir)
	require.NoError(t, err)
	require.Equal(t, modules, tree.Modules)

	require.NoError(t, os.WriteFile(filepath.Join(modules, "modules.builtin"), []byte("kernel/a/built-in.ko\n"), 0o644))
	list, err := tree.Load([]string{"built_in", "perhaps?"})
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = tree.Load([]string{"rdma_rxe"})
	require.ErrorContains(t, err, "has no module rdma_rxe")
	require.NoError(t, os.WriteFile(filepath.Join(modules, "kernel", "bad.ko"), []byte("no ELF"), 0o644))
	_, err = tree.Load([]string{"bad"})
	require.Error(t, err)
}
