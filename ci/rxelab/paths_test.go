package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Guests write to the file behind a link, and its layer has it by that name.
func TestPlacesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real", "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real", "file"), nil, 0o644))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "real", "alias")))
	for path, want := range map[string][]string{
		"link/new/out": {"real/new/out"},
		"link/sub":     {"real/sub"},
		"link":         {"link", "real"},
		"link/alias":   {"real/alias", "real/file"},
		"none/of/it":   {"none/of/it"},
	} {
		for i := range want {
			want[i] = filepath.Join(dir, want[i])
		}
		require.Equal(t, want, places(filepath.Join(dir, path)), path)
	}
	o, err := parse([]string{"-keep", filepath.Join(dir, "link", "out"), "true"})
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "real", "out")}, o.keep)
}

func TestFoldersThatACommandNeeds(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"work", "bin", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	require.NoError(t, os.Symlink("work", filepath.Join(dir, "link")))
	at := func(s string) string { return filepath.Join(dir, s) }
	for _, c := range []struct {
		argv0, dir, tmp string
		want            []string
	}{
		{"true", "work", "none", []string{at("work")}},
		{"true", "link", "none", []string{at("work")}},
		{"../bin/prog", "work", "none", []string{at("bin"), at("work")}},
		{at("bin/prog"), "work", "tmp", []string{at("bin"), at("tmp"), at("work")}},
		{"./prog", "work", "tmp", []string{at("tmp"), at("work")}},
	} {
		require.Equal(t, c.want, needs([]string{c.argv0}, at(c.dir), []string{"TMPDIR=/", "TMPDIR=" + at(c.tmp)}), c)
	}
}
