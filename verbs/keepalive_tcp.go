package verbs

import (
	"net"
	"syscall"
	"time"
)

// keepConnAlive ends a TCP connection, or one in TLS, when its peer has not been heard
// of for about that time. Negative means never. TCP counts whole seconds.
func keepConnAlive(conn net.Conn, every time.Duration) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn()
	}
	c, ok := conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	})
	if !ok {
		return
	}
	const probes = 3
	idle, interval := max(every/2, time.Second), max(every/(2*probes), time.Second)
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: every > 0, // a connection that has broken says so itself
		Idle: idle, Interval: interval, Count: probes})
	// TCP does not probe while it retransmits, which it does for a quarter of an hour.
	if s, ok := conn.(syscall.Conn); ok && every > 0 {
		socketGiveUp(s, idle+probes*interval)
	}
}
