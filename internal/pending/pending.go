// Package pending bounds a server's connections from peers that have not shown yet that
// they speak its protocol. A flood of them from one address leaves room for all others.
package pending

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// Bounds of a server's pending connections. A peer that speaks at once needs its place for
// a moment only; what a place costs is a file and the stack of a goroutine.
const (
	maxTotal  = 1024
	MaxSource = 256
)

// ErrCrowded is why a connection lost its place.
var ErrCrowded = errors.New("too many connections have not begun the protocol: a newer one has its place")

// Conns are the pending connections of one server. Its methods may be called from any
// number of goroutines.
type Conns struct {
	mu    sync.Mutex
	table table[netip.Prefix]
}

// New returns an empty Conns.
func New() *Conns { return NewInTurn(MaxSource, MaxSource) }

// NewInTurn returns an empty Conns with places for that many connections of each source, for a
// server that makes something for connections before their peers have proved anything: for the
// oldest n of each source only.
func NewInTurn(places, n int) *Conns {
	return &Conns{table: table[netip.Prefix]{total: maxTotal, each: places, abreast: n, sources: make(map[netip.Prefix][]*entry)}}
}

// Admit gives a connection from addr a place. If there is none, the oldest connection of the
// address that has most loses its place, and its evict is called, which must not block. The
// caller calls leave once the peer has begun the protocol or the connection has closed; leave
// returns [ErrCrowded] if the connection has lost its place. Calling it again changes nothing.
func (c *Conns) Admit(addr net.Addr, evict func()) (leave func() error) {
	_, leave = c.AdmitInTurn(addr, evict)
	return leave
}

// AdmitInTurn is Admit. turn closes when the connection is among the oldest of its source: see
// [NewInTurn].
func (c *Conns) AdmitInTurn(addr net.Addr, evict func()) (turn <-chan struct{}, leave func() error) {
	e, from := &entry{evict: evict, turn: make(chan struct{})}, Source(addr)
	c.mu.Lock()
	evicted := c.table.admit(from, e)
	c.mu.Unlock()
	if evicted != nil {
		evicted.evict()
	}
	return e.turn, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.table.remove(from, e)
		if e.evicted {
			return ErrCrowded
		}
		return nil
	}
}

// Len returns the number of pending connections.
func (c *Conns) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.n
}

// Source returns what counts as one source: an IPv4 address; of IPv6 the 64 bits that name a
// subnet, since one host may use all addresses in it. What has no IP address is one source.
func Source(addr net.Addr) netip.Prefix {
	a, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := a.AddrPort().Addr().Unmap().WithZone("")
	bits := min(ip.BitLen(), 64)
	p, _ := ip.Prefix(bits)
	return p
}
