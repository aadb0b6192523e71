//go:build !linux

package lab

// BeforeReset is about Linux.
func BeforeReset(interface{ ToError() error }) error { return nil }
