package engine

import "github.com/goverbs/goverbs/srd/internal/wire"

// arrivals are the numbers of a flow that arrived before others in front of them. While
// there are none they have no mask: most flows of most peers are idle.
type arrivals struct {
	*wire.Mask
	n uint16
}

func (a *arrivals) has(seq uint32) bool { return a.n > 0 && a.Has(seq) }

// see puts a number in.
func (e *Engine) see(a *arrivals, seq uint32) {
	if a.n == 0 {
		if n := len(e.masks); n > 0 {
			a.Mask, e.masks = e.masks[n-1], e.masks[:n-1]
		} else {
			a.Mask = new(wire.Mask)
		}
	}
	if !a.Has(seq) {
		a.Set(seq)
		a.n++
	}
}

// unmark takes a number out.
func (e *Engine) unmark(a *arrivals, seq uint32) {
	if !a.has(seq) {
		return
	}
	a.Drop(seq)
	if a.n--; a.n == 0 {
		e.blank(a)
	}
}

// blank takes all numbers out.
func (e *Engine) blank(a *arrivals) {
	if a.Mask == nil {
		return
	}
	if len(e.masks) < spareNetworks {
		*a.Mask = wire.Mask{}
		e.masks = append(e.masks, a.Mask)
	}
	*a = arrivals{}
}
