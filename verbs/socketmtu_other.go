//go:build !linux

package verbs

import (
	"syscall"
	"time"
)

func socketMTU(syscall.Conn) int               { return 0 }
func socketGiveUp(syscall.Conn, time.Duration) {}
func socketUnacknowledged(syscall.Conn) int    { return 0 }
