package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that comes to a device, by whatever it calls, is a device test; the others have run on
// the host.
func TestHostTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a_test.go": `package x_test
import ("example.com/lab"; "os"; "verbs")
type side struct{}
func (*side) close() { lab.Clear() }
func newSide(n int) *side { return nil }
func find() { verbs.Devices() }
func TestDirect(t *testing.T) { lab.Impair() }
func TestByType(t *testing.T) { t.Run("x", func(t *testing.T) { s := newSide(1); s.close() }) }
func TestFinds(t *testing.T) { find() }
func TestSimulatedFaults(t *testing.T) {}
func TestHost(t *testing.T) { plain(t) }
func TestByEnvironment(t *testing.T) { os.Getenv("SIMHCA") }
func TestSkipped(t *testing.T) { t.Skip() }
func ExampleHost() {}
func FuzzHost(f *testing.F) {}
func TestMain(m *testing.M) {}`,
		"b_test.go": `package x
func plain(t *testing.T) {}
func find() { var lab struct{ Impair func() }; lab.Impair() }
func TestOtherPackage(t *testing.T) { find() }`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	tests, err := hostTests(dir)
	require.NoError(t, err)
	require.Equal(t, words("ExampleHost FuzzHost TestHost TestOtherPackage"), tests)
}

// What a program skips already it goes on skipping.
func TestHostTestsAreLeftOut(t *testing.T) {
	r := &runner{root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(r.root, "srd"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "srd", "a_test.go"), []byte("package srd\nfunc TestA(t *testing.T) {}"), 0o644))
	for have, want := range map[string]string{"p": "p -test.skip=^(TestA)$", "p -test.skip=Load -x": "p -test.skip=Load|^(TestA)$ -x"} {
		got, err := r.withoutHostTests(words(have), "./srd")
		require.NoError(t, err)
		require.Equal(t, words(want), got)
	}
	r.o.sanitize = true
	got, err := r.withoutHostTests(words("p"), "./srd")
	require.NoError(t, err)
	require.Equal(t, words("p"), got)
}
