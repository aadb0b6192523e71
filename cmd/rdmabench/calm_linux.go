package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// calmSlack is longer than the interval of the timer interrupt, 4 ms or 10 ms.
const calmSlack = 10 * time.Millisecond

// restartCalm starts the program again with late timers. Threads inherit the
// timer slack of the one that makes them, so that the monitor thread, which is
// made before main, has it only if the program was started with it.
//
// A program that waits by events gets schedtrace too, with an interval longer
// than any run: else the monitor falls asleep whenever all Ps are idle, and the
// next call into C spends the instructions to wake it. That is read at the
// start of a program alone.
func restartCalm(events bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	debug := os.Getenv("GODEBUG")
	awake := !events || strings.Contains(debug, "schedtrace")
	if time.Duration(slack) >= calmSlack && awake {
		return nil
	}
	if !awake {
		if err := os.Setenv("GODEBUG", strings.Trim(debug+",schedtrace=1000000000", ",")); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(calmSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("restart: %w", syscall.Exec(self, os.Args, os.Environ()))
}
