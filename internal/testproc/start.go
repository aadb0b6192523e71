//go:build linux

package testproc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a process that is killed when this program ends, however that does. The channel has the result of
// [exec.Cmd.Wait], once, and is closed then.
func Start(c *exec.Cmd) (ended <-chan error, err error) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, end := make(chan error), make(chan error, 1)
	go func() { // the kernel kills the process when the thread ends that has started it
		runtime.LockOSThread()
		err := c.Start()
		if started <- err; err == nil {
			end <- c.Wait()
			close(end)
		}
	}()
	return end, <-started
}
