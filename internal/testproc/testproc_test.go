//go:build linux

package testproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that is stopped writes nothing until it continues.
func TestStop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "written")
	c := exec.Command("sh", "-c", `while :; do echo >> "$1"; done`, "sh", file)
	require.NoError(t, c.Start())
	defer func() {
		require.NoError(t, c.Process.Kill())
		require.Error(t, c.Wait())
	}()
	size := func() int64 {
		st, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	grows := func() {
		t.Helper()
		before := size()
		require.Eventually(t, func() bool { return size() > before }, time.Minute, time.Millisecond)
	}
	for range 10 {
		grows()
		Stop(t, c.Process)
		before := size()
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, before, size())
		require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	}
	grows()

	defer func(f func(int) bool) { Awaited = f }(Awaited)
	asked := 0
	Awaited = func(pid int) bool {
		require.Equal(t, c.Process.Pid, pid)
		asked++
		return asked < 3
	}
	Stop(t, c.Process)
	require.Equal(t, 3, asked, "stopped until no process waits for it")
	before := size()
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, before, size())
}
