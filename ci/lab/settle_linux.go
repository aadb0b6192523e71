package lab

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ResetMiscounts tells whether a queue pair of Soft-RoCE must not be reset while it
// executes a request, which is so before Linux 6.4: rxe_qp_reset runs the responder
// beside that of the soft interrupt (tasklet_disable does not hold off rxe_run_task),
// both give the packet back, and the queue pair and the device have a reference too
// few. "Executes" lasts longer than the request: the acknowledgement leaves first.
var ResetMiscounts = sync.OnceValue(func() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major < 6 || major == 6 && minor < 4)
})

// Settle waits for the end of what Soft-RoCE executes, some milliseconds. In ERROR
// nothing new begins, so a queue pair that was moved there may be reset then. Requests
// are executed within RCU read-side sections, for which membarrier(2) waits.
func Settle() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL, which is synchronize_rcu
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return os.NewSyscallError("membarrier", errno)
	}
	return nil
}
