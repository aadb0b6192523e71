// Package boottime reads a clock that runs while the host is suspended, which the clock of the
// runtime does not.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time of CLOCK_BOOTTIME.
func Now() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
