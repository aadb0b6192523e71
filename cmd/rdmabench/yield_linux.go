package main

import "golang.org/x/sys/unix"

// yieldCPU lets another thread run. The kernel is asked directly: with idle Ps
// (see calmRuntime) no goroutine waits for this one's, and telling the runtime
// of so short a system call costs more than the call.
func yieldCPU() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
