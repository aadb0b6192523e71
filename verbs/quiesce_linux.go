package verbs

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// resetWaits reports whether Soft-RoCE's RESET waits for what it executes, as it does
// from Linux 6.4 on.
var resetWaits = sync.OnceValue(func() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return waitsIn(unix.ByteSliceToString(u.Release[:]))
})

func waitsIn(release string) bool {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 4)
}

// awaitExecuting waits until Soft-RoCE has executed what it was executing: its
// responder runs in soft interrupts there, and they are over when RCU's grace period is,
// for which membarrier(2) waits. Where a sandbox forbids that, it waits longer than a
// CPU was seen to stand still.
func awaitExecuting() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL, which is synchronize_rcu
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(50 * time.Millisecond)
	}
}
