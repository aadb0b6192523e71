package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// places returns where a path leads: where its last element is, and if that is a
// link, what it points to. The layer that a guest writes to knows files by these
// names alone. What does not exist yet is taken as it is written.
func places(path string) []string {
	here := filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
	if there := resolved(here); there != here {
		return []string{here, there}
	}
	return []string{here}
}

// resolved returns a path without links, as far as it exists.
func resolved(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}

// needs returns the folders that a command must find even where guests have folders
// of their own: its working folder, its program's, and that for its files.
func needs(argv []string, dir string, env []string) []string {
	list := []string{dir}
	if len(argv) > 0 && strings.Contains(argv[0], "/") {
		list = append(list, filepath.Dir(absolute(argv[0], dir)))
	}
	for _, e := range slices.Backward(env) {
		if tmp, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			if st, err := os.Stat(tmp); err == nil && st.IsDir() && filepath.IsAbs(tmp) {
				list = append(list, tmp)
			}
			break
		}
	}
	for i := range list {
		list[i] = resolved(list[i])
	}
	slices.Sort(list) // a folder comes before what is in it, which would be covered
	return slices.Compact(list)
}

func absolute(path, base string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}
