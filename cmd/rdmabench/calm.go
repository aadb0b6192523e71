package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// calmRuntime keeps the Go runtime's monitor thread from competing with the
// device for the only CPU of a machine. With several CPUs it does nothing.
//
// With one P the monitor, seeing nobody else to give it to, takes it away from
// every call into C that lasts longer than 20 us, and goes on looking every 20
// us: half of the instructions of a READ then are the monitor's. With spare Ps
// it lets such calls be.
//
// When all Ps are idle the monitor goes to sleep, to be woken by the next call
// into C and to look every 20 us again: some 90 us of instructions for each
// completion event. It does not sleep so deeply while schedtrace is set, which
// is only read at the start of a program; the interval is longer than any run.
func calmRuntime() error {
	if !oneCPU {
		return nil
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(4)
	}
	if old := os.Getenv("GODEBUG"); !strings.Contains(old, "schedtrace") {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		setting := strings.Trim(old+",schedtrace=1000000000", ",")
		if err := os.Setenv("GODEBUG", setting); err != nil {
			return err
		}
		return fmt.Errorf("restart: %w", unix.Exec(self, os.Args, os.Environ()))
	}
	return nil
}
