//go:build !linux

// Package guest is the init process of a guest, which is Linux always.
package guest

// IsInit is false: this system has no guests.
func IsInit() bool { return false }

// Main is never called.
func Main() {}
