// Package rtt estimates round trip times as RFC 6298 does.
package rtt

import "time"

// Estimate is the estimate of a round trip time. Its zero value has no sample.
type Estimate struct {
	SRTT   time.Duration // smoothed
	RTTVar time.Duration // the mean deviation from that
}

// Sample adds a round trip time, which is positive.
func (e *Estimate) Sample(d time.Duration) {
	if e.SRTT == 0 {
		e.SRTT, e.RTTVar = d, d/2
		return
	}
	e.RTTVar += ((e.SRTT - d).Abs() - e.RTTVar) / 4
	e.SRTT += (d - e.SRTT) / 8
}

// Timeout returns how long to wait for a reply, before any bounds.
func (e *Estimate) Timeout() time.Duration { return e.SRTT + 4*e.RTTVar }
