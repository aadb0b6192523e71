package table

import "github.com/goverbs/goverbs/cache/internal/wire"

// Load returns how full the table is, in percent.
func (t *Table) Load() int {
	depth := t.cur.depth
	if t.Growing() {
		depth = t.next.depth
	}
	return t.count * 100 / (wire.BucketEntries << depth)
}

// Growing reports whether the table is doubling.
func (t *Table) Growing() bool { return t.next.mem != nil }

// Next returns how many bytes the memory has that Grow would ask for; 0 if it would not.
func (t *Table) Next() int {
	if t.Growing() || t.cur.depth >= t.cfg.MaxDepth {
		return 0
	}
	return wire.BucketSize << (t.cur.depth + 1)
}

// Grow begins to double the table, if it can.
func (t *Table) Grow() bool {
	if t.Next() == 0 {
		return false
	}
	t.next = t.alloc(t.cur.depth + 1)
	t.moved = 0
	return t.Growing()
}

// Step moves up to n buckets into the new array. When all have been moved it returns the old array, in
// which late READs find that the buckets have moved.
func (t *Table) Step(n int) (old []byte) {
	if !t.Growing() {
		return nil
	}
	for ; n > 0 && t.moved < 1<<t.cur.depth; n-- {
		t.split(t.moved)
		t.moved++
	}
	if t.moved < 1<<t.cur.depth {
		return nil
	}
	old = t.cur.mem
	t.cur, t.next, t.moved = t.next, array{}, 0
	return old
}

// split distributes bucket i over 2i and 2i+1, where each entry belongs by the same of
// its two hashes as before.
func (t *Table) split(i uint32) {
	from := t.cur.bucket(i)
	to := [2]wire.Bucket{t.next.bucket(2 * i), t.next.bucket(2*i + 1)}
	var used [2]int
	for n, b := range to {
		b.Reset(t.next.depth, 2*i+uint32(n), t.cfg.Epoch)
	}
	for k := range wire.BucketEntries {
		e := from.Entry(k)
		if e.Version == 0 {
			continue
		}
		which, other := wire.Buckets(e.Fingerprint, t.next.depth)
		if which/2 != i {
			which = other
		}
		n := which % 2
		to[n].Set(used[n], e)
		used[n]++
	}
	from.Move()
}

// Walk appends the entries of the bucket at a position, and returns the position behind it. Positions
// are first bits of bucket numbers: they stay right when the table doubles. Walks begin at 0 and end
// at 0.
func (t *Table) Walk(pos uint64, found []wire.Entry) ([]wire.Entry, uint64) {
	a := &t.cur
	i := uint32(pos >> 1 >> (63 - a.depth))
	if i < t.moved {
		a = &t.next
		i = uint32(pos >> 1 >> (63 - a.depth))
	}
	b := a.bucket(i)
	for k := range wire.BucketEntries {
		if e := b.Entry(k); e.Version != 0 {
			found = append(found, e)
		}
	}
	return found, (uint64(i) + 1) << 1 << (63 - a.depth)
}
