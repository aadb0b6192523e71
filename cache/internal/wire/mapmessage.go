package wire

import (
	"encoding/binary"
	"slices"
)

// Map begins a full sync of a client's map. What follows in the same stream are chunks and deltas, unless it is alone.
type Map struct {
	Epoch  uint32
	Seq    uint64 // the last delta that the full sync needs not
	Clock  uint64
	Secret Secret
	Table  Where  // the buckets
	Depth  uint16 // logarithm of their number
	// Longest is the longest value in bytes that the server takes; 0: it does not say. It does not read through
	// messages that are much longer.
	Longest uint32
	Flushed uint64 // what has a version up to this one is no record any more, whatever is READ
	Alone   bool   // neither entries nor changes follow, but another Map: the client probes
	Granted bool   // a READ counts only while a grant of the server lasts: see [OpGrant]
}

const (
	mapFixed   = 58
	mapAlone   = 1 // bits of the byte behind the depth
	mapGranted = 2
)

// AppendMap encodes the beginning of a full sync.
func AppendMap(dst []byte, m *Map) []byte {
	start := len(dst)
	dst = begin(dst, KindMap, m.Epoch)
	for _, v := range [...]uint64{m.Seq, m.Clock, m.Secret[0], m.Secret[1]} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = binary.LittleEndian.AppendUint64(dst, m.Table.Addr)
	dst = binary.LittleEndian.AppendUint32(dst, m.Table.Key)
	bits := byte(0)
	if m.Alone {
		bits |= mapAlone
	}
	if m.Granted {
		bits |= mapGranted
	}
	dst = append(dst, byte(m.Depth), bits)
	dst = binary.LittleEndian.AppendUint32(dst, m.Longest)
	return end(binary.LittleEndian.AppendUint64(dst, m.Flushed), start)
}

// ReadMap decodes it.
func ReadMap(src []byte) (m Map, err error) {
	epoch, b, err := open(src, KindMap, mapFixed)
	switch {
	case err != nil:
		return m, err
	case len(b) != mapFixed || b[44] > MaxDepth || b[45]&^(mapAlone|mapGranted) != 0:
		return m, Malformed
	}
	le := binary.LittleEndian
	return Map{epoch, le.Uint64(b), le.Uint64(b[8:]), Secret{le.Uint64(b[16:]), le.Uint64(b[24:])}, Where{le.Uint64(b[32:]), le.Uint32(b[40:])}, uint16(b[44]), le.Uint32(b[46:]), le.Uint64(b[50:]), b[45]&mapAlone != 0, b[45]&mapGranted != 0}, nil
}

// MaxEntries of a chunk, and deltas of a message.
const MaxEntries = 4096

// Chunk is a part of a full sync.
type Chunk struct {
	Epoch   uint32
	Seq     uint64 // the last delta before it in the stream
	Clock   uint64
	Last    bool
	Entries []Entry
}

const chunkFixed = 24

// AppendChunk encodes a part of a full sync.
func AppendChunk(dst []byte, c *Chunk) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = begin(dst, KindChunk, c.Epoch)
	dst = le.AppendUint64(dst, c.Seq)
	dst = le.AppendUint64(dst, c.Clock)
	dst = le.AppendUint32(dst, uint32(len(c.Entries)))
	last := uint32(0)
	if c.Last {
		last = 1
	}
	dst = le.AppendUint32(dst, last)
	for i := range c.Entries {
		dst = appendEntry(dst, &c.Entries[i])
	}
	return end(dst, start)
}

func appendEntry(dst []byte, e *Entry) []byte {
	var b [EntrySize]byte
	e.Put(b[:])
	return append(dst, b[:]...)
}

// Read decodes a chunk, into the entries that c has room for.
func (c *Chunk) Read(src []byte) error {
	epoch, b, err := open(src, KindChunk, chunkFixed)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	n, last := le.Uint32(b[16:]), le.Uint32(b[20:])
	if n > MaxEntries || last > 1 || len(b) != chunkFixed+int(n)*EntrySize {
		return Malformed
	}
	*c = Chunk{epoch, le.Uint64(b), le.Uint64(b[8:]), last == 1, c.Entries[:0]}
	for i := range int(n) {
		c.Entries = append(c.Entries, GetEntry(b[chunkFixed+i*EntrySize:]))
	}
	return nil
}

// Change is what a delta does to the map.
type Change uint8

const (
	ChangePut   Change = iota + 1 // a new entry; Gone, if not 0, is the version that it replaces
	ChangeGone                    // the entry of this fingerprint and the version Gone is no more
	ChangeFlush                   // all entries of versions up to Gone are no more
	ChangeTable                   // the buckets are elsewhere now, 1<<Gone of them: see [Delta.Table]
	changes
)

// Delta is one change of the map.
type Delta struct {
	Change Change
	Gone   uint64
	Entry  Entry
}

// TableMoved returns the change that has the table in another place, of 1<<depth buckets.
func TableMoved(epoch uint32, to Where, depth int) Delta {
	return Delta{ChangeTable, uint64(depth), Entry{Fingerprint: to.Addr, Version: uint64(to.Key), Epoch: epoch}}
}

// Table returns where the table is after a [ChangeTable], and the logarithm of its number of buckets.
func (d *Delta) Table() (Where, int) {
	return Where{d.Entry.Fingerprint, uint32(d.Entry.Version)}, int(d.Gone)
}

// A delta is its change, 1 byte, fingerprint and place, 8 each, and then how far the version and the one that is
// gone are behind the delta's own number, 7 bits to a byte: 20 or 21 bytes mostly. Each change goes to each
// client, so its length is most of what clients are told. The epoch is the message's, and an item's number is of
// no use to a client.
const (
	deltaFixed = 17
	minDelta   = deltaFixed + 2
)

// Deltas are changes that follow each other.
type Deltas struct {
	Epoch uint32
	First uint64 // the number of the first; without any, of the next one
	Clock uint64
	List  []Delta
}

const deltasFixed = 24

// AppendDeltas encodes changes; their entries are of the message's epoch.
func AppendDeltas(dst []byte, d *Deltas) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = begin(dst, KindDeltas, d.Epoch)
	dst = le.AppendUint64(dst, d.First)
	dst = le.AppendUint64(dst, d.Clock)
	dst = le.AppendUint64(dst, uint64(len(d.List)))
	for i := range d.List {
		c, seq := &d.List[i], d.First+uint64(i)
		dst = append(dst, byte(c.Change))
		dst = le.AppendUint64(dst, c.Entry.Fingerprint)
		dst = le.AppendUint64(dst, uint64(c.Entry.Place))
		dst = binary.AppendUvarint(dst, seq-c.Entry.Version)
		dst = binary.AppendUvarint(dst, seq-c.Gone)
	}
	return end(dst, start)
}

// Read decodes changes, into the list that d has room for.
func (d *Deltas) Read(src []byte) error {
	epoch, b, err := open(src, KindDeltas, deltasFixed)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	n := le.Uint64(b[16:])
	*d = Deltas{epoch, le.Uint64(b), le.Uint64(b[8:]), d.List[:0]}
	b = b[deltasFixed:]
	if n > MaxEntries {
		return Malformed
	}
	d.List = slices.Grow(d.List, int(n))[:n]
	for i := range d.List {
		var ok bool
		if b, ok = d.List[i].read(b, epoch, d.First+uint64(i)); !ok {
			d.List = d.List[:0]
			return Malformed
		}
	}
	if len(b) > 0 {
		d.List = d.List[:0]
		return Malformed
	}
	return nil
}

// read decodes the change of a number, and returns what follows it.
func (d *Delta) read(b []byte, epoch uint32, seq uint64) (rest []byte, ok bool) {
	if len(b) < minDelta {
		return nil, false
	}
	le := binary.LittleEndian
	change, fingerprint, place := Change(b[0]), le.Uint64(b[1:]), Place(le.Uint64(b[9:]))
	version, b := uvarint(b[deltaFixed:])
	gone, b := uvarint(b)
	gone = seq - gone
	if b == nil || change == 0 || change >= changes || change == ChangeTable && gone > MaxDepth {
		return nil, false
	}
	*d = Delta{change, gone, Entry{Fingerprint: fingerprint, Version: seq - version, Place: place, Epoch: epoch}}
	return b, true
}

// uvarint decodes a number of 7 bits to a byte, and returns what follows it: nil if there is none, or
// a longer one than is needed.
func uvarint(b []byte) (uint64, []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil
	}
	return v, b[n:]
}

// Horizon is how far a client is: it has applied all deltas up to Applied, and no READ
// that it began before it had applied Quiet is under way.
type Horizon struct {
	Epoch          uint32
	Applied, Quiet uint64
}

const horizonFixed = 16

// AppendHorizon encodes a horizon.
func AppendHorizon(dst []byte, h *Horizon) []byte {
	start := len(dst)
	dst = begin(dst, KindHorizon, h.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, h.Applied)
	return end(binary.LittleEndian.AppendUint64(dst, h.Quiet), start)
}

// ReadHorizon decodes it.
func ReadHorizon(src []byte) (h Horizon, err error) {
	epoch, b, err := open(src, KindHorizon, horizonFixed)
	if err != nil {
		return h, err
	}
	h = Horizon{epoch, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
	if len(b) != horizonFixed || h.Quiet > h.Applied {
		return Horizon{}, Malformed
	}
	return h, nil
}

// Access is a record that was READ.
type Access struct {
	Fingerprint, Version uint64
}

// Report is a sample of what a client READ.
type Report struct {
	Epoch    uint32
	Hits     uint64 // all that there were since the last report
	Accesses []Access
}

const reportFixed = 8

// AppendReport encodes a report.
func AppendReport(dst []byte, r *Report) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint64(begin(dst, KindReport, r.Epoch), r.Hits)
	for _, a := range r.Accesses {
		dst = binary.LittleEndian.AppendUint64(dst, a.Fingerprint)
		dst = binary.LittleEndian.AppendUint64(dst, a.Version)
	}
	return end(dst, start)
}

// Read decodes a report, into the list that r has room for.
func (r *Report) Read(src []byte) error {
	epoch, b, err := open(src, KindReport, reportFixed)
	if err != nil {
		return err
	}
	hits, b := binary.LittleEndian.Uint64(b), b[reportFixed:]
	if len(b)%16 != 0 || len(b)/16 > MaxEntries {
		return Malformed
	}
	*r = Report{epoch, hits, r.Accesses[:0]}
	for ; len(b) > 0; b = b[16:] {
		r.Accesses = append(r.Accesses, Access{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
	}
	return nil
}

// AppendBye encodes a client's last message. It has no body.
func AppendBye(dst []byte, epoch uint32) []byte {
	return end(begin(dst, KindBye, epoch), len(dst))
}

// ReadBye decodes it.
func ReadBye(src []byte) (epoch uint32, err error) {
	epoch, b, err := open(src, KindBye, 0)
	if len(b) > 0 {
		err = Malformed
	}
	return epoch, err
}
