package srd

import "math/bits"

// piece is the memory of a message that the program has. It is the piece of one message after
// another: each takes the number that it has then, which changes when the message is released.
type piece struct {
	bytes []byte
	num   uint32
}

// pool has the memory of messages that arrived: pieces of some sizes, up to a budget.
// The endpoint's lock guards it.
type pool struct {
	budget, used int
	free         [32][][]byte // by the logarithm of the size
	pieces       []*piece     // that no message has
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

// lend answers the piece of a message.
func (p *pool) lend(b []byte) *piece {
	n := len(p.pieces)
	if n == 0 {
		return &piece{bytes: b}
	}
	m := p.pieces[n-1]
	p.pieces, m.bytes = p.pieces[:n-1], b
	return m
}

// takeBack takes back a message's piece, unless it did so before.
func (p *pool) takeBack(m *piece, num uint32) {
	if m == nil || m.num != num {
		return
	}
	m.num++
	p.put(m.bytes)
	m.bytes = nil
	p.pieces = append(p.pieces, m)
}

// pressure is how much of the budget is used, of 255.
func (p *pool) pressure() uint8 { return uint8(255 * p.used / p.budget) }
