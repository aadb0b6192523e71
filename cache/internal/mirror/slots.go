package mirror

import "math/bits"

// slots is a hash map of fingerprints with linear probing, in the order of the
// fingerprints, so that it can grow by an eighth and stay nearly full: 27 to 30 bytes an
// entry. No entry is before one that is nearer to its home (Robin Hood hashing): in a map that is
// nine tenths full a search for what is not there looks at five entries, and not at fifty.
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

// away returns how far an entry is from its home.
func (t *slots) away(i int) int {
	d := i - t.home(t.s[i].fingerprint)
	if d < 0 {
		d += len(t.s)
	}
	return d
}

// first returns where the entries of a fingerprint begin, and next where another one is behind the one
// at i; -1 if there is none.
func (t *slots) first(fingerprint uint64) int {
	if len(t.s) == 0 {
		return -1
	}
	i := t.home(fingerprint)
	for d := 0; t.s[i].version != 0 && t.s[i].fingerprint != fingerprint; d++ {
		// Homes are in the order of fingerprints, so a lower one is not nearer to its home, but where
		// the last places go on at the first ones: there the search is longer, and as right.
		if t.s[i].fingerprint > fingerprint && t.away(i) < d {
			return -1
		}
		i = t.after(i)
	}
	if t.s[i].version == 0 {
		return -1
	}
	return i
}

func (t *slots) next(i int) int {
	fingerprint, home := t.s[i].fingerprint, t.home(t.s[i].fingerprint)
	for i = t.after(i); t.s[i].version != 0 && t.home(t.s[i].fingerprint) == home; i = t.after(i) {
		if t.s[i].fingerprint == fingerprint {
			return i
		}
	}
	return -1
}

func (t *slots) find(fingerprint, version uint64) int {
	i := t.first(fingerprint)
	for i >= 0 && t.s[i].version&^used != version {
		i = t.next(i)
	}
	return i
}

// replace puts another version in the place of an entry, and reports whether it did: not if there is
// no such entry, or the other version is there already.
func (t *slots) replace(fingerprint, old, version, place uint64) bool {
	if version == 0 || version&used != 0 {
		return false
	}
	at := -1
	for i := t.first(fingerprint); i >= 0; i = t.next(i) {
		switch t.s[i].version &^ used {
		case version:
			return false
		case old:
			at = i
		}
	}
	if at < 0 {
		return false
	}
	t.s[at].version, t.s[at].place = version, place
	return true
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

// insert adds a slot, and moves entries that are nearer to their homes further.
func (t *slots) insert(s slot) {
	i := t.home(s.fingerprint)
	for d := 0; t.s[i].version != 0; d++ {
		if away := t.away(i); away < d {
			s, t.s[i] = t.s[i], s
			d = away
		}
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

// removeAt closes the gap: what is not at home moves forward.
func (t *slots) removeAt(i int) {
	t.n--
	for j := t.after(i); t.s[j].version != 0 && t.away(j) > 0; j = t.after(j) {
		t.s[i] = t.s[j]
		i = j
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
