package verbs

import "github.com/goverbs/goverbs/cgo"

// patience says whether a wait gives up the CPU before it parks, on a machine with one CPU. Where what is
// waited for comes by that, it costs half of an event. Where it does not come, as with a server that has many
// clients, or a client whose server has, each wait costs several changes of threads more. So waits that gave it
// up in vain have some of the next ones park at once: none after the first, then two, four, up to 32. Whoever
// has the turn to wait owns it.
type patience struct {
	vain, rest uint8
}

const (
	mostVain = 6
	someVain = 2 // in a row, before others park at once
)

// spins is how often to poll, if the queue's way is so many.
func (p *patience) spins(most uint32) uint32 {
	if most&cgo.Yield == 0 || p.rest == 0 {
		return most
	}
	p.rest--
	return 0
}

// polled tells what came of as many spins.
func (p *patience) polled(spins uint32, came bool) {
	switch {
	case came:
		if spins&cgo.Yield != 0 {
			p.vain = 0
		}
	case spins&cgo.Yield != 0:
		if p.vain = min(p.vain+1, mostVain); p.vain >= someVain {
			p.rest = 1 << (p.vain - 1)
		}
	}
}
