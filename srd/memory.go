package srd

import (
	"math/bits"
	"time"
)

// piece is the memory of a message that the program has. It serves one message after another:
// each notes the piece's number, which changes when the message is released.
type piece struct {
	bytes []byte
	num   uint32
}

// pool has the memory of messages that arrived, in pieces of some sizes. Memory in use and memory
// kept for reuse together are at most the budget. The endpoint's lock guards it.
type pool struct {
	budget, used, kept int
	lent               int           // of what is used, what the program has
	grace              time.Duration // for memory to be given back by the program
	lacks              time.Duration // since when there was none for a message, and none was given back; or 0
	free               [][][]byte    // kept, by the class of their size
	pieces             []*piece      // that no message has
}

const smallestPiece = 256

// size returns the size of the piece for n bytes. There are eight sizes between a power of two
// and the next one.
func (p *pool) size(n int) int {
	step := max(smallestPiece, int(1)<<bits.Len(uint(n))>>4)
	return min(max(1, (n+step-1)/step)*step, max(n, p.budget))
}

// class returns the class of the piece for n bytes, from 0 on: longer pieces are of higher classes.
func class(n int) int {
	units := (max(n, 1) - 1) / smallestPiece
	shift := max(bits.Len(uint(units)), 4) - 4
	return 8*shift + units>>shift
}

// get returns n bytes, or nil if the budget is used up.
func (p *pool) get(n int) []byte {
	size := p.size(n)
	if size > p.budget-p.used {
		return nil
	}
	p.used += size
	if c := class(n); c < len(p.free) && len(p.free[c]) > 0 {
		l := p.free[c]
		p.free[c] = l[:len(l)-1]
		p.kept -= size
		return l[len(l)-1][:n]
	}
	for other, l := range p.free {
		if p.used+p.kept <= p.budget {
			break
		}
		if len(l) > 0 {
			p.kept -= cap(l[0]) * len(l)
			p.free[other] = nil
		}
	}
	return make([]byte, n, size)
}

// soon reports whether there may soon be memory for n bytes for which there is none: other
// messages have it that are not whole yet, or the program gave some back a short time ago.
func (p *pool) soon(n int, now time.Duration) bool {
	if p.lacks == 0 {
		p.lacks = now
	}
	return p.size(n) <= p.budget-p.lent || now-p.lacks < p.grace
}

// put takes back what get returned.
func (p *pool) put(b []byte) {
	size, c := cap(b), class(cap(b))
	for c >= len(p.free) {
		p.free = append(p.free, nil)
	}
	p.used -= size
	p.kept += size
	p.free[c] = append(p.free[c], b[:size])
}

// lend returns a piece that holds b, for a message that the program gets.
func (p *pool) lend(b []byte) *piece {
	p.lent += cap(b)
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
	p.lent, p.lacks = p.lent-cap(m.bytes), 0
	p.put(m.bytes)
	m.bytes = nil
	p.pieces = append(p.pieces, m)
}

// pressure returns the share of the budget that is used, from 0 to 255.
func (p *pool) pressure() uint8 { return uint8(255 * p.used / p.budget) }
