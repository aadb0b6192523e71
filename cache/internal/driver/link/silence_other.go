//go:build !linux

package link

import (
	"net"
	"time"
)

// acknowledgedOf needs Linux: elsewhere it takes TCP's own time to find that a host is gone.
func acknowledgedOf(net.Conn) (a acknowledged, ok bool) { return a, false }

func keepAlive(net.Conn, time.Duration, int) {}

func abandon(net.Conn) {}
