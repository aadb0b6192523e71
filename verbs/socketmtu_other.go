//go:build !linux

package verbs

import "syscall"

func socketMTU(syscall.Conn) int            { return 0 }
func socketUnacknowledged(syscall.Conn) int { return 0 }
