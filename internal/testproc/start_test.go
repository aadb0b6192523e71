//go:build linux

package testproc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process lives on when the thread ends of the goroutine that called Start, and has the attributes of its command.
func TestStart(t *testing.T) {
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var ended <-chan error
	var err error
	thread := make(chan int)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		ended, err = Start(c)
		thread <- syscall.Gettid()
	}()
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	require.NoError(t, err)
	group, err := syscall.Getpgid(c.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, c.Process.Pid, group)
	if task != fmt.Sprintf("/proc/self/task/%d", os.Getpid()) { // that one never ends
		require.Eventually(t, func() bool {
			_, err := os.Stat(task)
			return os.IsNotExist(err)
		}, time.Minute, time.Millisecond)
	}
	select {
	case err := <-ended:
		t.Fatal("it has ended:", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, c.Process.Kill())
	require.Error(t, <-ended)
	_, open := <-ended
	require.False(t, open)
	_, err = Start(exec.Command("/no such program"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
