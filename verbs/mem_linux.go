package verbs

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mapMemory maps zeroed, private memory outside the Go heap. Huge pages are there when it
// returns: the first touch of one that cannot be had would be a bus error.
func mapMemory(size int, huge bool) ([]byte, error) {
	const prot = unix.PROT_READ | unix.PROT_WRITE
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if huge {
		size = (size + hugePage - 1) &^ (hugePage - 1)
		flags |= unix.MAP_HUGETLB
	}
	b, err := unix.Mmap(-1, 0, size, prot, flags)
	if err != nil {
		return nil, err
	}
	// A forked child must not take the pages that the device writes.
	err = unix.Madvise(b, unix.MADV_DONTFORK)
	if err == nil && huge {
		if err = unix.Madvise(b, unix.MADV_POPULATE_WRITE); err == unix.EINVAL {
			err = nil // before Linux 5.14 registration tells
		}
	}
	if err != nil {
		unix.Munmap(b)
		return nil, err
	}
	return b, nil
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }

// memlockLimit returns the soft limit of locked memory in bytes. It reports false where
// none applies: it is infinite, or the process has CAP_IPC_LOCK.
func memlockLimit() (uint64, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur == unix.RLIM_INFINITY || locksAll() {
		return 0, false
	}
	return l.Cur, true
}

// locksAll reports whether the process has CAP_IPC_LOCK where the kernel asks for it: in
// the first user namespace, in which all IDs are mapped to themselves.
func locksAll() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil || caps[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
		return false
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
}
