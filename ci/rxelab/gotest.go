package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Flags by which go test tells a test binary what to write: files, which are
// below -test.outputdir unless they have a path of their own, and folders.
var (
	testFiles = []string{"coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace", "testlogfile"}
	testDirs  = []string{"gocoverdir", "fuzzcachedir"}
)

// testFlags returns the values of a test binary's own flags, without "test.". There
// are none if the command is no test binary.
func testFlags(argv []string) map[string]string {
	values := make(map[string]string)
	for i, a := range argv {
		name, value, ok := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		name, isTest := strings.CutPrefix(strings.TrimPrefix(name, "-"), "test.")
		if i == 0 || !strings.HasPrefix(a, "-") || !isTest {
			continue
		}
		if !ok && i+1 < len(argv) {
			value = argv[i+1] // wrong for a flag without a value, of which none matters here
		}
		values[name] = value
	}
	return values
}

// written returns the files and folders of the host that the command is to write,
// as go test names them: profiles, coverage, and what fuzzing finds.
func written(argv []string, dir string, env []string) []string {
	flags := testFlags(argv)
	output := absolute(flags["outputdir"], dir)
	var out []string
	add := func(path, base string) {
		if path != "" {
			out = append(out, absolute(path, base))
		}
	}
	for _, name := range testFiles {
		add(flags[name], output)
	}
	for _, name := range testDirs {
		add(flags[name], dir)
	}
	if flags["fuzz"] != "" {
		add(filepath.Join("testdata", "fuzz"), dir)
	}
	for _, e := range env {
		if coverage, ok := strings.CutPrefix(e, "GOCOVERDIR="); ok {
			add(coverage, dir)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// dumpTime is what a test binary gets, behind its own time limit, to show its
// goroutines.
const dumpTime = time.Minute

// testLimit returns how long a test binary may take, from its own limit; 0 if it has
// none. Fuzzing begins when the tests have ended, and has a time of its own.
func testLimit(argv []string) time.Duration {
	flags := testFlags(argv)
	limit, err := time.ParseDuration(flags["timeout"])
	if err != nil || limit <= 0 {
		return 0
	}
	if fuzz, err := time.ParseDuration(flags["fuzztime"]); err == nil && flags["fuzz"] != "" {
		limit += fuzz
	}
	return limit + dumpTime
}
