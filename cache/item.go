package cache

import "fmt"

// Item is a record, as Get returns and Set takes it.
type Item struct {
	Value []byte
	Flags uint32 // the program's
	// CAS is the number of this record, for CompareAndSwap.
	CAS uint64
}

// into copies a value to dst, or, if it may grow and has no room, to new memory. Without that a value
// that does not fit is returned for its length alone, see [shortened].
func into(value, dst []byte, grow bool) []byte {
	if grow {
		if dst == nil || cap(dst) < len(value) {
			dst = make([]byte, 0, len(value))
		}
		return append(dst[:0], value...)
	}
	if len(value) > len(dst) {
		return value // not to be looked at: only its length is
	}
	return dst[:copy(dst, value)]
}

func shortened(it Item, dst []byte, grow bool) (Item, error) {
	if n := len(it.Value); !grow && n > len(dst) {
		it.Value = nil
		return it, fmt.Errorf("%w: %d bytes, room for %d", ErrShort, n, len(dst))
	}
	return it, nil
}
