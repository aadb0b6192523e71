//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const moduleTest = `package m

import (
	"os"
	"testing"
)

func Twice(n int) int { return 2 * n }

func TestTwice(t *testing.T) {
	if Twice(2) != 4 {
		t.Fatal()
	}
	if os.Getenv("LAB_TOPOLOGY") == "" {
		t.Fatal("not in a guest")
	}
	if err := os.WriteFile("junk", nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzTwice(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, n int) {
		if n > 100 {
			t.Fatal("too much")
		}
	})
}
`

// goTest runs go test with -exec in a module of its own.
func goTest(t *testing.T, dir string, args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"test", "-exec", "'" + launcherOnce(t) + "' -topo none"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func module(t *testing.T) string {
	launcher(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ngo 1.26\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m_test.go"), []byte(moduleTest), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.go"), []byte("package m\n"), 0o644))
	return dir
}

// Profiles and coverage come back; what a test writes beside itself does not.
func TestProfilesComeBack(t *testing.T) {
	dir := module(t)
	out, err := goTest(t, dir, "-count=1", "-coverprofile=cover.out", "-cpuprofile=cpu.out", "-trace=trace.out", ".")
	require.NoError(t, err, out)
	for _, f := range []string{"cover.out", "cpu.out", "trace.out"} {
		require.FileExists(t, filepath.Join(dir, f), out)
	}
	require.NoFileExists(t, filepath.Join(dir, "junk"))
}

// What fuzzing finds is there when the guest is gone.
func TestFuzzingKeepsItsCrasher(t *testing.T) {
	dir := module(t)
	out, err := goTest(t, dir, "-fuzz=FuzzTwice", "-fuzztime=60s", ".")
	require.Error(t, err)
	require.Contains(t, out, "too much")
	found, err := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", "FuzzTwice", "*"))
	require.NoError(t, err)
	require.Len(t, found, 1, out)
	require.NoFileExists(t, filepath.Join(dir, "junk"))
}
