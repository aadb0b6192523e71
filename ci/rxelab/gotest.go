package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// testFiles are the flags by which go test tells a test binary what to write.
var testFiles = []string{"test.coverprofile", "test.gocoverdir", "test.outputdir", "test.testlogfile", "test.cpuprofile",
	"test.memprofile", "test.blockprofile", "test.mutexprofile", "test.trace", "test.fuzzcachedir"}

// sharedDirs are the folders that the guest must be able to write to: those
// that go test names when the command is a test binary. Everything else that
// the command writes stays in the guest.
func sharedDirs(argv []string) []string {
	var dirs []string
	add := func(path string) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return
		}
		if st, err := os.Stat(abs); err != nil || !st.IsDir() {
			abs = filepath.Dir(abs)
		}
		if st, err := os.Stat(abs); err != nil || !st.IsDir() || abs == "/" {
			return
		}
		dirs = append(dirs, abs)
	}
	isTest := false
	for _, a := range argv {
		name, value, ok := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if ok && strings.HasPrefix(a, "-") && slices.Contains(testFiles, name) && value != "" {
			add(value)
		}
		isTest = isTest || strings.HasPrefix(a, "-test.")
	}
	if isTest && strings.Contains(argv[0], "go-build") {
		add(filepath.Dir(argv[0]))
	}
	return outermost(dirs)
}

// outermost drops folders that lie inside others.
func outermost(dirs []string) []string {
	slices.Sort(dirs)
	var out []string
	for _, d := range dirs {
		if len(out) == 0 || d != out[len(out)-1] && !strings.HasPrefix(d, out[len(out)-1]+"/") {
			out = append(out, d)
		}
	}
	return out
}
