//go:build !linux

package server

func hostMemory() uint64 { return 0 }

func freeSpace(string) (uint64, bool) { return 0, false }
