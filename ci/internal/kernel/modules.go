package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Module is one kernel module, decompressed.
type Module struct {
	Name string
	Data []byte
}

// Load returns the named modules and everything that they depend on, in an
// order in which they can be inserted. A name with a final "?" may be missing;
// what is built into the kernel is left out.
func (t *Tree) Load(names []string) ([]Module, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(t.Modules, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if base, _, ok := strings.Cut(d.Name(), ".ko"); ok {
				files[canonical(base)] = path
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	builtin, _ := os.ReadFile(filepath.Join(t.Modules, "modules.builtin"))
	for _, line := range strings.Fields(string(builtin)) {
		files[canonical(strings.TrimSuffix(filepath.Base(line), ".ko"))] = ""
	}

	var order []Module
	seen := make(map[string]bool)
	var visit func(name string) error
	visit = func(name string) error {
		name, optional := strings.CutSuffix(name, "?")
		name = canonical(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := files[name]
		switch {
		case !ok && optional, ok && path == "":
			return nil
		case !ok:
			return fmt.Errorf("kernel %s has no module %s (a cloud kernel?)", t.Release, name)
		}
		data, err := readModule(path)
		if err != nil {
			return err
		}
		data = unsigned(data)
		deps, err := depends(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, d := range deps {
			if err := visit(d); err != nil {
				return err
			}
		}
		order = append(order, Module{name, data})
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// canonical: the kernel takes - and _ in module names for the same.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// readModule decompresses what distributions compress with xz, zstd or gzip.
func readModule(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r io.Reader
	switch filepath.Ext(path) {
	case ".xz":
		r, err = xz.NewReader(bytes.NewReader(b))
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(bytes.NewReader(b)); err == nil {
			defer z.Close()
			r = z
		}
	case ".gz":
		r, err = gzip.NewReader(bytes.NewReader(b))
	default:
		return b, nil
	}
	if err == nil {
		b, err = io.ReadAll(r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// unsigned cuts off the signature, which costs an emulated guest as much as
// all else that it does for a module. The kernel says that it is tainted.
func unsigned(module []byte) []byte {
	// Behind the module: the signature, 12 bytes that end with its length in
	// four, big endian, and this line (include/linux/module_signature.h).
	const mark, info = "~Module signature appended~\n", 12
	b, ok := bytes.CutSuffix(module, []byte(mark))
	if !ok || len(b) < info {
		return module
	}
	b, length := b[:len(b)-info], binary.BigEndian.Uint32(b[len(b)-4:])
	if uint64(length) > uint64(len(b)) {
		return module
	}
	return b[:len(b)-int(length)]
}

// depends reads the modules that a module needs from its .modinfo section, so
// that neither depmod nor its tables are needed.
func depends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	info := f.Section(".modinfo")
	if info == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	text, err := info.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(string(text), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
