package link

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control calls f with the descriptor of a connection's socket, and reports whether it did: not if
// there is none that is open.
func control(conn net.Conn, f func(fd int)) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}

func acknowledgedOf(conn net.Conn) (a acknowledged, ok bool) {
	var info *unix.TCPInfo
	var err error
	if !control(conn, func(fd int) { info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO) }) || err != nil {
		return a, false
	}
	return acknowledged{
		waits: info.Unacked > 0 || info.Probes > 0, probes: info.Probes > 0, unsent: info.Notsent_bytes > 0,
		lastAck: time.Duration(info.Last_ack_recv) * time.Millisecond, lastSent: time.Duration(info.Last_data_sent) * time.Millisecond,
	}, true
}

// keepAlive ends a quiet connection after most probes without a response, at intervals of every.
func keepAlive(conn net.Conn, every time.Duration, most int) {
	control(conn, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(every/time.Second))
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, most)
	})
}

// abandon makes closing a connection discard what is left to send.
func abandon(conn net.Conn) {
	control(conn, func(fd int) {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
}
