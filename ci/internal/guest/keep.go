//go:build linux

package guest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ci/internal/files"
)

// keep copies what was written at each path, a file or a folder, to the
// launcher's folder, under the number of the path. What is there unchanged, or
// lies in a shared folder, is not copied: the host has it.
func (r *root) keep(paths [][]byte) error {
	var errs []error
	for i, p := range paths {
		path := filepath.Clean(string(p))
		from, ok := r.written(path)
		if !ok {
			continue
		}
		to := filepath.Join(descriptor(r.out), strconv.Itoa(i))
		if err := files.CopyTree(from, to); err != nil {
			errs = append(errs, fmt.Errorf("bring back %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// written returns where changes of path are found: in the layer that is on top
// there, or in a folder that the guest has for itself. The descriptors lead out
// of the root that programs see.
func (r *root) written(path string) (string, bool) {
	for _, s := range r.shares {
		if within(path, s) {
			return "", false
		}
	}
	best := r.layers[0]
	for _, l := range r.layers[1:] {
		if within(path, l.at) {
			best = l
		}
	}
	if best.at == "/" && isPrivate(path) {
		return path, true
	}
	rel, err := filepath.Rel(best.at, path)
	return filepath.Join(descriptor(best.upper), rel), err == nil
}

// isPrivate reports whether path lies in memory of the guest's own.
func isPrivate(path string) bool {
	return slices.ContainsFunc(private, func(p string) bool { return within(path, p) })
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
