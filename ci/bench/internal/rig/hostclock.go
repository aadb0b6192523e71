package rig

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// HostClock returns the hardware clock in seconds. In a guest on the instruction clock it is the
// host's.
func HostClock() (time.Duration, error) {
	b, err := os.ReadFile("/sys/class/rtc/rtc0/since_epoch")
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return time.Duration(s) * time.Second, err
}
