package cache

import "fmt"

// Item is a record, as Get returns and Set takes it.
type Item struct {
	Value []byte
	Flags uint32 // the program's
	// CAS is the number of this record, for CompareAndSwap.
	CAS uint64
}

// fetch is the get of one key: where its value goes, and the item once it was found.
type fetch struct {
	key, dst []byte
	grow     bool // a value without room goes to new memory
	it       Item
	size     int // of the value
}

// take makes a copy of a record the item. A value without room is left out.
func (f *fetch) take(value []byte, flags uint32, cas uint64) {
	f.size, f.it.Flags, f.it.CAS, f.it.Value = len(value), flags, cas, nil
	switch {
	case f.grow:
		dst := f.dst
		if dst == nil || cap(dst) < len(value) {
			dst = make([]byte, 0, len(value))
		}
		f.it.Value = append(dst[:0], value...)
	case f.size <= len(f.dst):
		f.it.Value = f.dst[:copy(f.dst, value)]
	}
}

// short returns an error if the item's value was left out.
func (f *fetch) short() error {
	if f.grow || f.size <= len(f.dst) {
		return nil
	}
	return f.lacks()
}

// lacks is apart from short, which is inlined so.
func (f *fetch) lacks() error {
	return fmt.Errorf("%w: %d bytes, room for %d", ErrShort, f.size, len(f.dst))
}
