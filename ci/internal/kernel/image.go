package kernel

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// unpacked returns the kernel inside a compressed image, unpacked into a folder
// once. A guest that unpacks its kernel itself spends half of an emulated boot
// on that.
func unpacked(image, dir string) (string, error) {
	b, err := os.ReadFile(image)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("vmlinux-%x", sha256.Sum256(b)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	payload, err := payloadOf(b)
	if err != nil {
		return "", err
	}
	vmlinux, err := decompress(payload)
	if err != nil {
		return "", err
	}
	if err := startable(vmlinux); err != nil {
		return "", err
	}
	return path, cache.WriteFile(path, vmlinux)
}

// payloadOf returns the compressed kernel in an image for x86 (Linux,
// Documentation/arch/x86/boot.rst: setup_sects, payload_offset and
// payload_length, little endian; protocol 2.08 or later).
func payloadOf(image []byte) ([]byte, error) {
	const header, setupSects, version, payload = 0x202, 0x1f1, 0x206, 0x248
	le := binary.LittleEndian
	if len(image) < payload+8 || string(image[header:header+4]) != "HdrS" || le.Uint16(image[version:]) < 0x208 {
		return nil, errors.New("no image for x86 that tells where its payload is")
	}
	sects := int(image[setupSects])
	if sects == 0 {
		sects = 4
	}
	begin := (sects+1)*512 + int(le.Uint32(image[payload:]))
	end := begin + int(le.Uint32(image[payload+4:]))
	if begin > end || end > len(image) {
		return nil, fmt.Errorf("payload from %d to %d of %d bytes", begin, end, len(image))
	}
	return image[begin:end], nil
}

// decompress unpacks what the kernel's build packs. Behind the compressed data
// is their unpacked size, 4 bytes.
func decompress(payload []byte) ([]byte, error) {
	if len(payload) < 4 {
		return nil, errors.New("no payload")
	}
	data, size := payload[:len(payload)-4], binary.LittleEndian.Uint32(payload[len(payload)-4:])
	var out []byte
	var err error
	switch {
	case bytes.HasPrefix(data, []byte("\xfd7zXZ\x00")):
		// With a filter for machine code, which no Go package has.
		xz := exec.Command("xz", "-dc")
		xz.Stdin = bytes.NewReader(data)
		out, err = xz.Output()
	case bytes.HasPrefix(data, []byte("\x28\xb5\x2f\xfd")):
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(data)); err == nil {
			defer d.Close()
			out, err = io.ReadAll(d)
		}
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		var d *gzip.Reader
		if d, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			out, err = io.ReadAll(d)
		}
	default:
		err = fmt.Errorf("a payload that begins with %x", data[:min(4, len(data))])
	}
	if err == nil && uint32(len(out)) != size {
		err = fmt.Errorf("%d bytes unpacked, %d expected", len(out), size)
	}
	return out, err
}

// startable returns an error unless QEMU can start a kernel that is not an image: it
// must have the entry for that (CONFIG_PVH), which is in a note.
func startable(vmlinux []byte) error {
	f, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return err
	}
	const entry = 18 // XEN_ELFNOTE_PHYS32_ENTRY
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		for len(notes) >= 12 {
			name, desc := f.ByteOrder.Uint32(notes), f.ByteOrder.Uint32(notes[4:])
			kind, rest := f.ByteOrder.Uint32(notes[8:]), notes[12:]
			padded := (uint64(name)+3)&^3 + (uint64(desc)+3)&^3
			if uint64(len(rest)) < padded {
				break
			}
			if kind == entry && name == 4 && string(rest[:4]) == "Xen\x00" {
				return nil
			}
			notes = rest[padded:]
		}
	}
	return errors.New("it has no entry for a start without an image (CONFIG_PVH)")
}
