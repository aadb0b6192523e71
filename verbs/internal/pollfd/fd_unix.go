//go:build unix

// Package pollfd puts descriptors of C libraries into the network poller.
package pollfd

import (
	"os"

	"golang.org/x/sys/unix"
)

// Open makes a descriptor of a C library non-blocking and returns a
// duplicate of it that the netpoller waits on. Closing the file closes the duplicate;
// the original stays with its object.
func Open(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(dup), name), nil
}
