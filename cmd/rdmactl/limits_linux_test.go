package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// setLimits lowers this process's limits as a test asked for.
func setLimits() {
	for name, resource := range map[string]int{"TEST_MEMLOCK": unix.RLIMIT_MEMLOCK, "TEST_NOFILE": unix.RLIMIT_NOFILE} {
		if v, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: v, Max: v}); err != nil {
				panic(err)
			}
		}
	}
}
