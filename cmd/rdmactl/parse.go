package main

import (
	"slices"
	"strconv"
	"strings"
)

// Text that the kernel writes into files.

// statusField reads a field of /proc/PID/status; empty if it is not there.
func statusField(s, name string) string {
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(line, ":"); ok && k == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// hasCapability reports whether /proc/PID/status grants a capability.
func hasCapability(status string, bit int) bool {
	v, err := strconv.ParseUint(statusField(status, "CapEff"), 16, 64)
	return err == nil && v>>bit&1 != 0
}

// firstUserNamespace reports from /proc/PID/uid_map whether capabilities reach
// the kernel as a whole: there all IDs are mapped to themselves.
func firstUserNamespace(uidMap string) bool {
	return slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

// pciID reads a PCI number as "0x15b3".
func pciID(s string) (uint32, bool) {
	hex, ok := strings.CutPrefix(strings.TrimSpace(s), "0x")
	v, err := strconv.ParseUint(hex, 16, 32)
	return uint32(v), ok && err == nil
}
