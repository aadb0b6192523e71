// Package topo makes the lab's networks inside a guest: links, addresses,
// routes, RDMA devices, impairments, and the proof that packets cross the
// wire.
package topo

import "net/netip"

// MTU of the links; the RDMA MTU behind it is 4096.
const MTU = 4200

// Addr is the address of end or host number i.
func Addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}) }

// Paths of the topology "ecmp".
const Paths = 4
