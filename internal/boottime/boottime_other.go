//go:build !linux

package boottime

import "time"

// Now returns the time of the runtime's clock.
func Now() time.Time { return time.Now() }
