package link

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bound has a connection end when what was sent is not acknowledged for so long. By itself TCP takes a quarter
// of an hour to find that a host is gone that has lost its power. A host whose program hangs acknowledges.
func bound(conn net.Conn, silence time.Duration) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence/time.Millisecond))
		})
	}
}
