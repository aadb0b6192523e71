package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/internal/calm"
)

// calmRuntime keeps the Go runtime's monitor thread from competing with the
// device for the only CPU of a machine.
//
// A program that waits by events: when all Ps are idle the monitor goes to sleep, to be woken by the next call
// into C and to look every 20 us again: some 90 us of instructions for each
// completion event. It does not sleep so deeply while schedtrace is set, which
// is only read at the start of a program; the interval is longer than any run.
func calmRuntime(events bool) error {
	calm.SpareProcs()
	if old := os.Getenv("GODEBUG"); events && runtime.NumCPU() == 1 && !strings.Contains(old, "schedtrace") {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		setting := strings.Trim(old+",schedtrace=1000000000", ",")
		if err := os.Setenv("GODEBUG", setting); err != nil {
			return err
		}
		return fmt.Errorf("restart: %w", syscall.Exec(self, os.Args, os.Environ()))
	}
	return nil
}
