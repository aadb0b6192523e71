package main

import "golang.org/x/sys/unix"

// kernelRelease returns what uname -r says.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
