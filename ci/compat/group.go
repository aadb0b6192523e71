package main

import (
	"os/exec"
	"syscall"
)

// group has a command, and what it started, end together: a test that is stopped leaves its server.
func group(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
