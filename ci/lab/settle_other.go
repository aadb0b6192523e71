//go:build !linux

package lab

// ResetMiscounts is about Linux.
func ResetMiscounts() bool { return false }

// Settle is about Linux.
func Settle() error { return nil }
