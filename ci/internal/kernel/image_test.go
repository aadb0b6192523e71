package kernel

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// vmlinux is an ELF file of a header, one segment of notes and nothing else.
func vmlinux(notes ...byte) []byte {
	const header, segment = 64, 56
	b := make([]byte, header+segment, header+segment+len(notes))
	le := binary.LittleEndian
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 2)       // executable
	le.PutUint16(b[18:], 62)      // x86-64
	le.PutUint32(b[20:], 1)       // version
	le.PutUint64(b[32:], header)  // of segments
	le.PutUint16(b[52:], header)  // size
	le.PutUint16(b[54:], segment) // size of one
	le.PutUint16(b[56:], 1)
	le.PutUint16(b[58:], 64) // size of a section header
	le.PutUint32(b[header:], 4)
	le.PutUint64(b[header+8:], header+segment)
	le.PutUint64(b[header+32:], uint64(len(notes)))
	le.PutUint64(b[header+40:], uint64(len(notes)))
	return append(b, notes...)
}

func note(kind byte, desc ...byte) []byte {
	return append([]byte{4, 0, 0, 0, byte(len(desc)), 0, 0, 0, kind, 0, 0, 0, 'X', 'e', 'n', 0}, desc...)
}

// image is one for x86 with a payload.
func image(packed []byte, size int) []byte {
	b := make([]byte, 5*512)
	copy(b[0x202:], "HdrS")
	b[0x207] = 2
	b[0x206] = 15
	binary.LittleEndian.PutUint32(b[0x248:], 100)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(packed)+4))
	b = append(b, make([]byte, 100)...)
	return binary.LittleEndian.AppendUint32(append(b, packed...), uint32(size))
}

func gzipped(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestUnpackedImage(t *testing.T) {
	good := vmlinux(append(note(6, 'l', 'i', 'n', 'u', 'x', 0, 0, 0), note(18, 1, 2, 3, 4)...)...)
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, packed := range map[string][]byte{"gzip": gzipped(t, good), "zstd": z.EncodeAll(good, nil)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "vmlinuz")
			require.NoError(t, os.WriteFile(path, image(packed, len(good)), 0o644))
			for range 2 { // the second time it is there
				got, err := unpacked(path, dir)
				require.NoError(t, err)
				b, err := os.ReadFile(got)
				require.NoError(t, err)
				require.Equal(t, good, b)
			}
		})
	}
}

// What cannot be unpacked is started as it is.
func TestImagesThatStayPacked(t *testing.T) {
	good := vmlinux(note(18, 1, 2, 3, 4)...)
	whole := image(gzipped(t, good), len(good))
	cut := image(gzipped(t, good), len(good))
	binary.LittleEndian.PutUint32(cut[0x24c:], 1<<20)
	for reason, b := range map[string][]byte{
		"no image for x86":           []byte("MZ"),
		"payload from":               cut,
		"a payload that begins":      image([]byte("lzma"), 4),
		"bytes unpacked":             image(gzipped(t, good), 7),
		"no entry":                   image(gzipped(t, vmlinux(note(6)...)), len(vmlinux(note(6)...))),
		"it has no entry for":        image(gzipped(t, vmlinux(note(18)[:14]...)), len(vmlinux(note(18)[:14]...))),
		"bad magic number":           image(gzipped(t, []byte("no kernel at all")), 16),
		"unexpected EOF":             image(gzipped(t, good)[:60], len(good)),
		"no payload":                 append(whole[:0x24c:0x24c], append([]byte{0, 0, 0, 0}, whole[0x250:]...)...),
		"tells where its payload is": whole[:0x200],
	} {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			boot, modules := filepath.Join(dir, "boot"), filepath.Join(dir, "lib", "modules", "1", "kernel")
			require.NoError(t, os.MkdirAll(boot, 0o755))
			require.NoError(t, os.MkdirAll(modules, 0o755))
			path := filepath.Join(boot, "vmlinuz-1")
			require.NoError(t, os.WriteFile(path, b, 0o644))
			tree, err := open(dir, dir)
			require.NoError(t, err)
			require.Equal(t, path, tree.Image)
			require.ErrorContains(t, tree.Packed, reason)
		})
	}
}
