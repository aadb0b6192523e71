// Package procs keeps the Go runtime from competing with a software device for
// the only CPU of a machine.
package procs

import (
	"os"
	"runtime"
)

// SpareProcs raises GOMAXPROCS to 4, unless the environment sets it, so that the
// runtime has idle Ps. Its monitor takes the last P away from each call into C or the kernel
// that lasts longer than 20 us, and goes on looking every 20 us: on one CPU half
// of the instructions of a READ then are the monitor's. With an idle P it leaves
// such calls alone, and sleeps.
func SpareProcs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
}
