package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// calmRuntime keeps the Go runtime's monitor thread from competing with the
// device for the only CPU of a machine.
//
// A program that waits by events: when all Ps are idle the monitor goes to sleep, to be woken by the next call
// into C and to look every 20 us again: some 90 us of instructions for each
// completion event. It does not sleep so deeply while schedtrace is set, which
// is only read at the start of a program; the interval is longer than any run.
func calmRuntime(events bool) error {
	spareProcs()
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

// spareProcs sees to it that the runtime has idle Ps. Its monitor takes the
// last P away from each call into C that lasts longer than 20 us, and goes on
// looking every 20 us: on one CPU half of the instructions of a READ then are
// the monitor's. With an idle P beside it lets such calls be, and sleeps.
func spareProcs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
}
