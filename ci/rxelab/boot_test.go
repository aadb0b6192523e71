//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// launcher names a built rxelab, given by make test; booting takes ten seconds
// a time, so plain "go test" leaves these tests out.
func launcher(t *testing.T) string {
	path := os.Getenv("RXELAB")
	if path == "" {
		t.Skip("boots virtual machines: set RXELAB to a built rxelab, as make test does")
	}
	return path
}

// noQEMU fails the test if a QEMU that was not there before is there now.
func noQEMU(t *testing.T) {
	count := func() int {
		all, _ := filepath.Glob("/proc/[0-9]*/comm")
		n := 0
		for _, f := range all {
			if b, _ := os.ReadFile(f); strings.HasPrefix(string(b), "qemu-system") {
				n++
			}
		}
		return n
	}
	before := count()
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return count() <= before }, 5*time.Second, 50*time.Millisecond, "QEMU is left over")
	})
}

func TestExitStatusAndOutput(t *testing.T) {
	noQEMU(t)
	dir := t.TempDir()
	cmd := exec.Command(launcher(t), "-artifacts", dir, "-env", "GREETING=hello", "--", "sh", "-c",
		`echo out $GREETING; echo err >&2; echo kept > $LAB_ARTIFACTS/file; seq 20000; exit 7`)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v\n%s", err, stderr.String())
	require.Equal(t, 7, exit.ExitCode(), stderr.String())
	require.True(t, strings.HasPrefix(stdout.String(), "out hello\n1\n"))
	require.True(t, strings.HasSuffix(stdout.String(), "\n20000\n"), "nothing of the end is lost")
	require.Equal(t, "err\n", stderr.String())
	b, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "kept\n", string(b))
	require.FileExists(t, filepath.Join(dir, "console-0.log"))
}

func TestTimeLimit(t *testing.T) {
	noQEMU(t)
	start := time.Now()
	out, err := exec.Command(launcher(t), "-timeout", "25s", "--", "sleep", "1000").CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit))
	require.Equal(t, exitTimeout, exit.ExitCode())
	require.Contains(t, string(out), "time limit")
	require.Contains(t, string(out), "console of host 0")
	require.Less(t, time.Since(start), 60*time.Second)
}

func TestInterruptLeavesNothing(t *testing.T) {
	noQEMU(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := exec.Command(launcher(t), "--", "sleep", "1000")
		require.NoError(t, cmd.Start())
		time.Sleep(3 * time.Second) // while it boots
		require.NoError(t, cmd.Process.Signal(sig))
		require.Error(t, cmd.Wait())
	}
}

func TestReaderGoesAway(t *testing.T) {
	noQEMU(t)
	cmd := exec.Command(launcher(t), "-timeout", "3m", "--", "yes")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.Error(t, cmd.Wait())
	require.Less(t, time.Since(start), 2*time.Minute, "the command waits for a reader that is gone")
}

func TestPanicIsSeen(t *testing.T) {
	noQEMU(t)
	out, err := exec.Command(launcher(t), "-timeout", "2m", "--", "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 100").CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit))
	require.Equal(t, exitLab, exit.ExitCode())
	require.Contains(t, string(out), "Kernel panic")
}
