package verbs

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketMTU returns how many bytes the packets of a TCP connection have at most, the IP
// header included, as its route has it and routers have told; 0 if that is not known.
func socketMTU(c syscall.Conn) (mtu int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU); err != nil {
			mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		}
	})
	if err != nil {
		return 0
	}
	return mtu
}

// socketUnacknowledged returns how many bytes that were written to a TCP connection the
// peer's host has not acknowledged; 0 if that is not known.
func socketUnacknowledged(c syscall.Conn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if err != nil {
		return 0
	}
	return n
}

// socketGiveUp ends a TCP connection if the peer has not acknowledged what was written for
// so long.
func socketGiveUp(c syscall.Conn, after time.Duration) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after/time.Millisecond))
		})
	}
}
