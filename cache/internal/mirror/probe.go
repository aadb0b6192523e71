package mirror

import "github.com/goverbs/goverbs/cache/internal/wire"

// Probe is a look at the server's table itself, for a key that has no entry here: a READ of
// its first bucket, and of the second one if it is not there. It is part of a [Section], which
// begins before: so the buckets are there as long as it lasts.
type Probe struct {
	table       wire.Where
	depth       int
	index       [2]uint32
	fingerprint uint64
	epoch       uint32
	since       uint64 // what had been applied when it began
}

// Probe begins a probe, and reports whether the table can be READ.
func (m *Mirror) Probe(fingerprint uint64) (Probe, bool) {
	if !m.live || m.table == (wire.Where{}) {
		return Probe{}, false
	}
	p := Probe{table: m.table, depth: m.depth, fingerprint: fingerprint, epoch: m.epoch, since: m.applied}
	p.index[0], p.index[1] = wire.Buckets(fingerprint, m.depth)
	return p, true
}

// Buckets returns how many there are: both hashes can lead to the same one.
func (p *Probe) Buckets() int {
	if p.index[0] == p.index[1] {
		return 1
	}
	return 2
}

// At returns where the i-th bucket is, wire.BucketSize bytes.
func (p *Probe) At(i int) (key uint32, addr uint64) {
	return p.table.Key, p.table.Addr + uint64(p.index[i])*wire.BucketSize
}

// Read takes the bytes of a READ of the i-th bucket, and appends the key's entries. After
// [wire.Torn] it can be READ again; after any other error only the server can say. Where no
// bucket has an entry there was no record of the key at a moment between the first READ's
// beginning and the last one's end: an entry stays in its bucket until it is deleted.
func (p *Probe) Read(src []byte, i int, found []wire.Entry) ([]wire.Entry, error) {
	return wire.ReadBucket(src, p.depth, p.index[i], p.epoch, p.fingerprint, found)
}

// Since returns what had been applied when the probe began.
func (p *Probe) Since() uint64 { return p.since }

// Applied returns the number of the last delta that has been applied.
func (m *Mirror) Applied() uint64 { return m.applied }

// Adopt takes the entry of a record that a READ found alive; since is what had been applied when the
// READ began. An entry that may have been removed after that is not taken: nothing would remove it
// here.
func (m *Mirror) Adopt(since uint64, e *wire.Entry) {
	if !m.live || e.Epoch != m.epoch || e.Version <= m.flushed || !m.gone.lacks(e.Version, since, m.applied) {
		return
	}
	m.learn(*e)
}

// learn puts an entry into the map, for which another one goes if there is no room.
func (m *Mirror) learn(e wire.Entry) {
	if m.cfg.Budget > 0 && m.entries.n >= m.cfg.Budget && m.entries.find(e.Fingerprint, e.Version) < 0 {
		m.forgetOne()
	}
	m.put(e)
}

// remembered is how many of the last deltas are.
const remembered = 64

// gone remembers which versions the last deltas have removed.
type gone struct {
	first    uint64 // the first delta that can be remembered
	versions [remembered]uint64
}

func (g *gone) note(seq, version uint64) { g.versions[seq%remembered] = version }

// lacks reports whether it is known that none of the deltas behind since, up to the last one, has
// removed a version.
func (g *gone) lacks(version, since, last uint64) bool {
	if since+1 < g.first || last > since+remembered {
		return false
	}
	for seq := since + 1; seq <= last; seq++ {
		if g.versions[seq%remembered] == version {
			return false
		}
	}
	return true
}
