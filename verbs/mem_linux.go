package verbs

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapMemory maps zeroed, private memory outside the Go heap.
func mapMemory(size int, pages PageSize) ([]byte, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if pages != PagesNormal {
		rounded := (size + hugePage - 1) &^ (hugePage - 1)
		b, err := unix.Mmap(-1, 0, rounded, prot, flags|unix.MAP_HUGETLB)
		if err == nil || pages == PagesHuge {
			return b, err
		}
	}
	b, err := unix.Mmap(-1, 0, size, prot, flags)
	if err != nil {
		return nil, err
	}
	// A forked child must not take the pages that the device writes.
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(b)
		return nil, err
	}
	return b, nil
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }

// memlockLimit is the soft limit in bytes; false when there is none, as for a process with
// CAP_IPC_LOCK in the first user namespace.
func memlockLimit() (uint64, bool) {
	status, _ := os.ReadFile("/proc/thread-self/status") // capabilities are a thread's
	users, _ := os.ReadFile("/proc/self/uid_map")
	if locksAll(string(status), string(users)) {
		return 0, false
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	return l.Cur, true
}

// locksAll tells from /proc/PID/status and uid_map whether a process may lock any memory.
func locksAll(status, uidMap string) bool {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	effective, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(effective), 16, 64)
	return err == nil && caps>>unix.CAP_IPC_LOCK&1 != 0 && slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}
