package srd

import "math/bits"

// pool has the memory of messages that arrived: pieces of some sizes, up to a budget.
// The endpoint's lock guards it.
type pool struct {
	budget, used int
	free         [32][][]byte // by the logarithm of the size
}

const smallestPiece = 8 // 256 bytes

func class(n int) int { return max(bits.Len(uint(max(n, 1)-1)), smallestPiece) }

// get answers n bytes, or nil if the budget is used up.
func (p *pool) get(n int) []byte {
	c := class(n)
	if p.used+1<<c > p.budget {
		return nil
	}
	p.used += 1 << c
	if l := len(p.free[c]); l > 0 {
		b := p.free[c][l-1]
		p.free[c] = p.free[c][:l-1]
		return b[:n]
	}
	return make([]byte, n, 1<<c)
}

// put takes back what get answered.
func (p *pool) put(b []byte) {
	c := class(cap(b))
	p.used -= 1 << c
	p.free[c] = append(p.free[c], b[:cap(b)])
}

// pressure is how much of the budget is used, of 255.
func (p *pool) pressure() uint8 { return uint8(255 * p.used / p.budget) }
