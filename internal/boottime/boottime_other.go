//go:build !linux

package boottime

import "time"

// Use does nothing.
func Use(func() int64) {}

// Now returns the time of the runtime's clock.
func Now() time.Time { return time.Now() }
