package kernel

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// Fedora has the image beside the modules, and compresses those otherwise than
// Debian.
func TestOtherLayouts(t *testing.T) {
	dir := t.TempDir()
	modules := filepath.Join(dir, "lib", "modules", "6.9-200.fc40")
	require.NoError(t, os.MkdirAll(filepath.Join(modules, "kernel"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(modules, "vmlinuz"), nil, 0o644))
	tree, err := open(dir, dir)
	require.NoError(t, err)
	require.Equal(t, "6.9-200.fc40", tree.Release)
	require.Equal(t, modules, tree.Modules)

	want := []byte("a module, or what stands for one")
	var gz, zst, lzma bytes.Buffer
	compress := func(w io.WriteCloser, err error) {
		require.NoError(t, err)
		_, err = w.Write(want)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	compress(gzip.NewWriter(&gz), nil)
	z, err := zstd.NewWriter(&zst)
	compress(z, err)
	x, err := xz.NewWriter(&lzma)
	compress(x, err)
	for ext, data := range map[string][]byte{"": want, ".gz": gz.Bytes(), ".zst": zst.Bytes(), ".xz": lzma.Bytes()} {
		path := filepath.Join(modules, "kernel", "a.ko"+ext)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		got, err := readModule(path)
		require.NoError(t, err, ext)
		require.Equal(t, want, got, ext)
		require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o644))
		_, err = readModule(path)
		require.Equal(t, ext != "", err != nil, "half of %q", ext)
	}
}

func TestSignaturesAreCutOff(t *testing.T) {
	const mark = "~Module signature appended~\n"
	signed := func(length byte) []byte {
		return []byte("ELFmodule" + "SIGNATURE" + "\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00" + string([]byte{length}) + mark)
	}
	require.Equal(t, "ELFmodule", string(unsigned(signed(9))))
	for _, odd := range [][]byte{nil, []byte("ELFmodule"), []byte(mark), signed(200)} {
		require.Equal(t, odd, unsigned(odd))
	}
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
