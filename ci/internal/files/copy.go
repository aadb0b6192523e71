// Package files copies what programs in guests have written.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyTree copies a regular file, or the regular files below a folder with the
// folders they are in; files that are there already are replaced. It does
// nothing if from does not exist.
func CopyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Lstat(from); errors.Is(serr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, st.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
