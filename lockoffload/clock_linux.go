package lockoffload

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time of CLOCK_BOOTTIME, which counts while the host is suspended. The
// runtime's clock does not.
func sinceBoot() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now()
	}
	return time.Unix(ts.Unix())
}
