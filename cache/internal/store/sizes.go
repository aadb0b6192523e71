package store

import (
	"math/bits"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Size counts the records of a range of sizes.
type Size struct {
	Records int
	Bytes   int // of memory that they take
}

// Sizes counts records by their size, with header and key: entry i those of up to 1<<i bytes that no
// lower entry has. Records that were flushed count until they are removed.
type Sizes [28]Size

// rangeOf returns the entry for a length.
func rangeOf(n int) int { return bits.Len(uint(n - 1)) }

// sized counts n more records at a place, or fewer.
func (s *Store) sized(p wire.Place, n int) {
	z := &s.sizes[rangeOf(p.Length())]
	z.Records += n
	z.Bytes += n * s.arena.SlotSize(p.Length())
}

// Sizes returns how many records there are of which sizes.
func (s *Store) Sizes() Sizes { return s.sizes }
