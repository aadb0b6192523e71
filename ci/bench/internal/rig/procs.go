package rig

import (
	"os"
	"runtime"
)

// DefaultProcs gives the runtime as many Ps as programs have that do not ask, until restore
// is called. Spare ones (procs.SpareProcs) are for goroutines that poll for long. Clients
// of a crowd park and wake each other, and with Ps to spare on one CPU threads take turns
// at it all the time: of lockoffload's, 14,000 context switches in place of 1,100 in a pass.
func DefaultProcs() (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	return func() { runtime.GOMAXPROCS(before) }
}
