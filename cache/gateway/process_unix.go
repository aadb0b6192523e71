//go:build unix

package gateway

import (
	"syscall"
	"time"
)

// cpuTime returns how long the process has run, in user mode and in the kernel.
func cpuTime() (user, system time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
