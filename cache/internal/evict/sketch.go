package evict

import "math"

// sketch counts accesses by fingerprint, also of items that are not stored. It is a count-min sketch
// with counters that are halved in turn. All counters of a fingerprint lie in one block, so that they
// are halved together and an access takes one cache miss.
type sketch struct {
	blocks []block // a power of two
	hand   int     // the blocks below it have been halved in this round
	since  int     // accesses since the hand moved
}

const (
	rows    = 4
	columns = 8
)

// block is a cache line.
type block [rows][columns]uint16

const (
	perBlock = 4 // items; the sketch doubles when there are more
	// window is the number of accesses for each item in which all counters are halved once.
	window = 8
)

func (s *sketch) block(fingerprint uint64) (*block, int) {
	i := int(fingerprint>>32) & (len(s.blocks) - 1)
	return &s.blocks[i], i
}

// reserve grows the sketch for n items. Both halves begin with the counts of the smaller one.
func (s *sketch) reserve(n int) {
	for n > perBlock*len(s.blocks) {
		s.blocks = append(s.blocks, s.blocks...)
	}
}

// add counts n accesses, and reports how many rounds the hand has completed.
func (s *sketch) add(fingerprint uint64, n int) (rounds int) {
	b, _ := s.block(fingerprint)
	least := int(b.least(fingerprint))
	for r := range rows {
		c := &b[r][fingerprint>>(3*r)%columns]
		*c = max(*c, uint16(min(least+n, math.MaxUint16)))
	}
	for s.since += n; s.since >= window*perBlock; s.since -= window * perBlock {
		b := &s.blocks[s.hand]
		for r := range b {
			for c := range b[r] {
				b[r][c] /= 2
			}
		}
		if s.hand++; s.hand == len(s.blocks) {
			s.hand = 0
			rounds++
		}
	}
	return rounds
}

func (b *block) least(fingerprint uint64) uint16 {
	least := b[0][fingerprint%columns]
	for r := 1; r < rows; r++ {
		least = min(least, b[r][fingerprint>>(3*r)%columns])
	}
	return least
}

// count returns twice the accesses of a fingerprint, of which older ones count less: half of that for each round
// since. Counters that the hand has yet to reach are taken as halved.
func (s *sketch) count(fingerprint uint64) int {
	b, i := s.block(fingerprint)
	n := int(b.least(fingerprint))
	if i < s.hand {
		n *= 2
	}
	return n
}
