package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// grace is how long a command may take to end by itself once it is told to.
const grace = 20 * time.Second

// start prepares a command that ends, with all that it has started, when ctx does. A low
// priority leaves the processors to the guests.
func (r *runner) start(ctx context.Context, low bool, env, argv []string) *exec.Cmd {
	if low {
		argv = append([]string{"nice", "-n", "10"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = r.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd
}

// finish waits for a command of a job, and then ends what it has left behind in its process
// group.
func (j *job) finish(cmd *exec.Cmd) error {
	err := cmd.Wait()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	j.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return err
}

// runCommand runs a job that is a command.
func (r *runner) runCommand(ctx context.Context, j *job, log io.Writer) error {
	cmd := r.start(ctx, !j.first, j.env, j.command)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	return j.finish(cmd)
}
