// Package topo makes the lab's networks inside a guest: links, addresses,
// routes, RDMA devices, impairments, and the proof that packets cross the
// wire.
package topo

import (
	"net/netip"
	"time"
)

// MTU of the links; the RDMA MTU behind it is 4096.
const MTU = 4200

// Addr returns the address of end or host number i.
func Addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}) }

// Paths of the topology "ecmp".
const Paths = 4

// Impairment is what a link does to the packets that leave through it.
type Impairment struct {
	Delay, Jitter time.Duration
	// Probabilities from 0 to 1.
	Loss, Duplicate, Reorder, Corrupt float64
	// Burst loses packets in bursts. It goes with Delay, Jitter, Duplicate and
	// Queue only.
	Burst Burst
	Rate  int64 // bits per second; 0 is no limit
	Queue int   // packets that wait at most; 0 means 10000
}

// Burst is a model of Gilbert and Elliott: a link is good or bad, and each
// packet finds it changed with the probabilities of Begin and End. The zero
// value loses nothing.
type Burst struct {
	Begin float64 // a good link becomes bad
	End   float64 // a bad one becomes good: bursts last 1/End packets on average
	Loss  float64 // of packets while the link is bad; 0 means all
}
