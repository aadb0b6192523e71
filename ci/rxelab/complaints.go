package main

import (
	"regexp"
	"strings"
)

// complaint is a line in which the kernel says that something in it is wrong.
var complaint = regexp.MustCompile(`Kernel panic|BUG:|kernel BUG at |Oops|WARNING: |refcount_t: |general protection|rcu: INFO: |rcu.*self-detected stall|soft lockup|` +
	`hard LOCKUP|blocked for more than|UBSAN|KASAN|KFENCE|scheduling while atomic|Bad page state|unable to handle`)

// linesOf is how much of the trace behind a complaint is shown.
const linesOf = 30

// complaints returns what a kernel complains of: each complaint with the lines that
// follow, up to the next one.
func complaints(console []byte) []string {
	lines := strings.Split(string(console), "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		if !complaint.MatchString(lines[i]) {
			continue
		}
		end := i + 1
		for end < len(lines) && end < i+linesOf && !strings.Contains(lines[end-1], "---[ end trace") && !begins(lines[end]) {
			end++
		}
		out = append(out, strings.TrimSpace(strings.Join(lines[i:end], "\n")))
		i = end - 1
	}
	return out
}

// begins reports whether a line is the first of a complaint. What refcounts
// complain of follows a WARNING.
func begins(line string) bool {
	return complaint.MatchString(line) && !strings.Contains(line, "refcount_t: ")
}
