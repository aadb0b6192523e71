package server

import "golang.org/x/sys/unix"

// hostMemory returns the bytes of memory that the host has, 0 if that is not known.
func hostMemory() uint64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return uint64(i.Totalram) * uint64(i.Unit)
}

// freeSpace returns the bytes that can be written to files of a folder.
func freeSpace(folder string) (uint64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(folder, &s) != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
