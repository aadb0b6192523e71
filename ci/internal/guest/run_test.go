//go:build linux

package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The last value of a variable counts, as for the program itself, and a folder
// of PATH that is relative begins where the program runs.
func TestProgramsAreFoundInTheirPath(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"old", "new", "here/bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, d, "tool"), nil, 0o755))
	}
	old, here := filepath.Join(dir, "old"), filepath.Join(dir, "here")
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"PATH=" + old, "PATH=" + filepath.Join(dir, "new")}, "new/tool"},
		{[]string{"PATH=" + old}, "old/tool"},
		{[]string{"PATH=bin:" + old}, "here/bin/tool"},
	} {
		got, err := find("tool", here, c.env)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, c.want), got)
	}
	_, err := find("tool", here, []string{"PATH=" + old, "PATH="})
	require.ErrorIs(t, err, exec.ErrNotFound)
	got, err := find("bin/tool", here, nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(here, "bin/tool"), got)
}

// What a program wrote in a folder that the guest has for itself is found there,
// what it wrote elsewhere in the layer that is on top.
func TestWhereWritingsAre(t *testing.T) {
	r := &root{layers: []layer{{"/", 3}, {"/home", 4}, {"/dev/shm/place", 5}}, shares: []string{"/home/me/shared"}}
	for path, want := range map[string]string{
		"/var/x":            "/proc/self/fd/3/var/x",
		"/homes/x":          "/proc/self/fd/3/homes/x",
		"/home/me/x":        "/proc/self/fd/4/me/x",
		"/dev/shm/place/x":  "/proc/self/fd/5/x",
		"/dev/shm/x":        "/dev/shm/x",
		"/run/user/7/x":     "/run/user/7/x",
		"/home/me/shared/x": "",
	} {
		got, ok := r.written(path)
		require.Equal(t, want, got)
		require.Equal(t, want != "", ok)
	}
}
