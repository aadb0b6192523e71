package lab

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// BeforeReset comes before a queue pair goes to RESET that may be executing requests,
// or was a moment ago. Soft-RoCE before Linux 6.4 must not be reset then: rxe_qp_reset
// runs the responder beside that of the soft interrupt (tasklet_disable does not hold
// off rxe_run_task), both give the packet back, and the queue pair and the device have a
// reference too few. "A moment ago" is because the acknowledgement leaves first.
//
// So it moves the queue pair to ERROR, where nothing new begins, and waits for the end
// of what is being executed, some milliseconds. On later kernels it does nothing.
func BeforeReset(qp interface{ ToError() error }) error {
	if !resetMiscounts() {
		return nil
	}
	return errors.Join(qp.ToError(), settle())
}

var resetMiscounts = sync.OnceValue(func() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major < 6 || major == 6 && minor < 4)
})

// settle waits: requests are executed within RCU read-side sections, for the end of
// which membarrier(2) waits.
func settle() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL, which is synchronize_rcu
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return os.NewSyscallError("membarrier", errno)
	}
	return nil
}
