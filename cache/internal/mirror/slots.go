package mirror

import "math/bits"

// slots is a hash map of fingerprints with linear probing, in the order of the
// fingerprints, so that it can grow by an eighth and stay nearly full: 27 to 30 bytes an
// entry.
type slots struct {
	s []slot
	n int
}

type slot struct {
	fingerprint uint64
	version     uint64 // 0: free; the first bit says that it was used
	place       uint64
}

// EntryBytes is what an entry takes at most, in a map that has grown to its size.
const EntryBytes = 30

const (
	slotBytes = 24
	used      = 1 << 63
	maxLoad   = 90 // percent
)

func (t *slots) home(fingerprint uint64) int {
	hi, _ := bits.Mul64(fingerprint, uint64(len(t.s)))
	return int(hi)
}

func (t *slots) after(i int) int {
	if i++; i == len(t.s) {
		return 0
	}
	return i
}

func (t *slots) find(fingerprint, version uint64) int {
	if len(t.s) == 0 {
		return -1
	}
	for i := t.home(fingerprint); t.s[i].version != 0; i = t.after(i) {
		if t.s[i].fingerprint == fingerprint && t.s[i].version&^used == version {
			return i
		}
	}
	return -1
}

func (t *slots) put(fingerprint, version, place uint64) {
	if version&used != 0 {
		return // hostile
	}
	if i := t.find(fingerprint, version); i >= 0 {
		t.s[i].place = place
		return
	}
	if (t.n+1)*100 > len(t.s)*maxLoad {
		old := t.s
		t.s = make([]slot, max(len(old)+len(old)/8, 16))
		for _, s := range old {
			if s.version != 0 {
				t.insert(s)
			}
		}
	}
	t.insert(slot{fingerprint, version, place})
	t.n++
}

func (t *slots) insert(s slot) {
	i := t.home(s.fingerprint)
	for t.s[i].version != 0 {
		i = t.after(i)
	}
	t.s[i] = s
}

func (t *slots) remove(fingerprint, version uint64) bool {
	i := t.find(fingerprint, version)
	if i >= 0 {
		t.removeAt(i)
	}
	return i >= 0
}

// removeAt closes the gap: what would not be found behind it moves forward.
func (t *slots) removeAt(i int) {
	t.n--
	for j := t.after(i); ; j = t.after(j) {
		if t.s[j].version == 0 {
			break
		}
		home := t.home(t.s[j].fingerprint)
		if (j-home+len(t.s))%len(t.s) >= (j-i+len(t.s))%len(t.s) {
			t.s[i] = t.s[j]
			i = j
		}
	}
	t.s[i] = slot{}
}

func (t *slots) removeUpTo(version uint64) {
	old := t.s
	t.s, t.n = make([]slot, len(old)), 0
	for _, s := range old {
		if s.version&^used > version {
			t.insert(s)
			t.n++
		}
	}
}
