package verbs

import (
	"fmt"
	"time"
)

// AckTimeout is how long a requester waits for an acknowledgement before it
// retries: 4.096 us * 2^n, n from 1 to 31; 0 waits for ever (InfiniBand
// specification, volume 1, section 9.7.6.1.3). Devices may take up to four
// times as long.
type AckTimeout uint8

// AckTimeoutFor is the shortest timeout that is at least d.
func AckTimeoutFor(d time.Duration) AckTimeout {
	for n := AckTimeout(1); n < 31; n++ {
		if n.Duration() >= d {
			return n
		}
	}
	return 31
}

// Duration is the timeout as a duration; 0 for one without end.
func (t AckTimeout) Duration() time.Duration {
	if t == 0 || t > 31 {
		return 0
	}
	return 4096 * time.Nanosecond << t
}

func (t AckTimeout) String() string {
	if t == 0 {
		return "none"
	}
	return t.Duration().String()
}

// RNRTimer is how long a requester waits after the responder had no receive
// posted (InfiniBand specification, volume 1, table 45).
type RNRTimer uint8

// In units of 10 us.
var rnrTimers = [32]int{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
	1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// RNRTimerFor is the shortest timer that is at least d.
func RNRTimerFor(d time.Duration) RNRTimer {
	for n := RNRTimer(1); n < 32; n++ {
		if n.Duration() >= d {
			return n
		}
	}
	return 0 // the longest of all
}

// Duration is the timer as a duration.
func (t RNRTimer) Duration() time.Duration {
	return time.Duration(rnrTimers[t&31]) * 10 * time.Microsecond
}

func (t RNRTimer) String() string { return fmt.Sprint(t.Duration()) }
