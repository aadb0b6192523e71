package debian

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// extract unpacks the files of a package, which never leave the folder into:
// symbolic links that point out of it are made, but not followed.
func extract(ctx context.Context, deb, into string) error {
	f, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := openData(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	defer data.Close()
	files := tar.NewReader(data)
	for {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if err := place(r, h, files); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

// openData finds the member data.tar of a package (deb(5), ar(5)) and
// decompresses it.
func openData(r io.Reader) (io.ReadCloser, error) {
	var magic [8]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil || string(magic[:]) != "!<arch>\n" {
		return nil, errors.Join(errors.New("not a Debian package"), err)
	}
	for {
		var header [60]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return nil, fmt.Errorf("a package without data.tar: %w", err)
		}
		name := strings.TrimSuffix(strings.TrimSpace(string(header[:16])), "/")
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || size < 0 || string(header[58:]) != "`\n" {
			return nil, fmt.Errorf("a damaged package: member %q has size %q", name, header[48:58])
		}
		if kind, ok := strings.CutPrefix(name, "data.tar"); ok {
			return decompress(kind, io.LimitReader(r, size))
		}
		// Members begin at even offsets.
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return nil, err
		}
	}
}

func decompress(kind string, r io.Reader) (io.ReadCloser, error) {
	switch kind {
	case "":
		return io.NopCloser(r), nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		z, err := xz.NewReader(r)
		return io.NopCloser(z), err
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("data.tar%s: no such compression", kind)
}

// place makes one file. A folder or a link to one that is there stays, as dpkg
// has it: that is how packages that say /lib end up in /usr/lib.
func place(r *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "/"))
	mode := h.FileInfo().Mode() &^ fs.ModeType
	if name == "." {
		return nil
	}
	if err := r.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if st, err := r.Stat(name); err == nil && st.IsDir() {
			return nil
		}
		if err := r.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		if err := r.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := r.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if there, err := r.Readlink(name); err == nil && there == h.Linkname {
			return nil
		}
		return errors.Join(r.Symlink(h.Linkname, name), own(r, name, h))
	case tar.TypeLink:
		return r.Link(path.Clean(h.Linkname), name)
	default:
		return fmt.Errorf("a file of type %q", h.Typeflag)
	}
	// The owner first: changing it clears the set-user-ID bit.
	return errors.Join(own(r, name, h), r.Chmod(name, mode))
}

// own gives a file to its owner, which only root can.
func own(r *os.Root, name string, h *tar.Header) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return r.Lchown(name, h.Uid, h.Gid)
}
