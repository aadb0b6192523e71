package verbs

import "github.com/goverbs/goverbs/cgo"

// yieldPolicy decides whether a wait yields the CPU before it parks, on a machine with one CPU. If the completion
// comes while it yields, that costs half as much as an event. If it does not, as with a server that has many
// clients, or a client of such a server, each wait costs several more thread switches. So after yields in vain
// some of the next waits park at once: none after the first, then two, four, up to 32. The holder of the poll
// lock owns it.
type yieldPolicy struct {
	vain, rest uint8
}

// spinsOf returns a program's number of spins as C takes it, where one bit of it means to yield.
func spinsOf(n int) uint32 { return uint32(min(max(n, 0), cgo.Yield-1)) }

const (
	maxVain  = 6
	someVain = 2 // in a row, before others park at once
)

// spins returns how often to poll, at most most.
func (p *yieldPolicy) spins(most uint32) uint32 {
	if most&cgo.Yield == 0 || p.rest == 0 {
		return most
	}
	p.rest--
	return 0
}

// polled records whether a completion came within as many spins.
func (p *yieldPolicy) polled(spins uint32, came bool) {
	switch {
	case came:
		if spins&cgo.Yield != 0 {
			p.vain = 0
		}
	case spins&cgo.Yield != 0:
		if p.vain = min(p.vain+1, maxVain); p.vain >= someVain {
			p.rest = 1 << (p.vain - 1)
		}
	}
}
