package machine

import (
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// The pointer word of a slot says which of its private copies is current:
// index 12 bits | version 52 bits. At first it names copy 0.
//
// Two copies belong to each owner number, for ever: 2(n-1) and 2(n-1)+1 to
// owner n. At most one of the two is current; the owner may write the other one
// at any time, for no reader accepts it: a reader requires the copy that the
// pointer names to have the version that the pointer names. A write prepares
// the copy that is not current, then moves the pointer to it:
//
//	[WRITE copy, CMP_SWAP pointer old -> new]
//
// The WRITE is executed before the CMP_SWAP behind it, so that a pointer never
// names a copy that is not there. The version grows with each move: a pointer
// that was seen never comes back. An owner knows which of its copies is current
// even if it has not seen the pointer for long, since no other client can make
// one current; after an unknown outcome, and in a new session, it looks first.
//
// A client that dies leaves nothing to take back: the next owner of the number
// overwrites a copy that was written without moving the pointer; a copy that the
// pointer was moved to is whole and stays until the next write.

const SwapVersionBits = memory.VersionBits

func makePointer(index int, version uint64) uint64 {
	return uint64(index)<<SwapVersionBits | version
}

func pointerIndex(p uint64) int      { return int(p >> SwapVersionBits) }
func PointerVersion(p uint64) uint64 { return p & (1<<SwapVersionBits - 1) }

// privateCopy returns the one of an owner's two copies that is not current.
func privateCopy(owner uint16, pointer uint64) int {
	first := 2 * (int(owner) - 1)
	if pointerIndex(pointer) == first {
		return first + 1
	}
	return first
}

// SwapLook is the state that the two operations have in common: a pointer, perhaps known.
type SwapLook struct {
	Work
	Slot    int
	Pointer uint64
	Known   bool // pointer was seen, maybe long ago
	look    int  // of the list
}

func (m *SwapLook) Undo() (Verdict, error) { return Done, nil }

// point records a pointer that was read, or returns an error if it is invalid.
func (m *SwapLook) point(p uint64) error {
	if pointerIndex(p) >= m.L.Swap {
		m.Known = false
		return fmt.Errorf("%w: pointer to copy %d of %d", memory.ErrRecord, pointerIndex(p), m.L.Swap)
	}
	m.Pointer, m.Known = p, true
	return nil
}

// SwapReader reads the current copy:
//
//	[READ copy, FETCH_ADD pointer + 0]   when the pointer was seen before and is the same
//	[FETCH_ADD pointer + 0] [READ copy]  otherwise
type SwapReader struct {
	SwapLook
	state swapState
	Data  []byte // in the end, as long as the machine has its memory
	Tried int
}

type swapState uint8

const (
	swapIdle swapState = iota
	swapGuessed
	swapLooked
	swapFetched
	swapDoubted // the copy did not fit: look whether the pointer moved
)

func (m *SwapReader) Step() (Verdict, error) {
	switch m.state {
	case swapIdle:
		m.begin()
		if m.Known {
			m.fetch()
			m.state = swapGuessed
		} else {
			m.state = swapLooked
		}
		m.look = m.load(m.L.PointerOff(m.Slot))
		m.Tried++
		return Post, nil
	case swapGuessed, swapLooked:
		before, guessed := m.Pointer, m.state == swapGuessed
		if err := m.point(m.result(m.look)); err != nil {
			return Done, err
		}
		if guessed && m.Pointer == before && m.fits() {
			return Done, nil
		}
		m.begin()
		m.fetch()
		m.state = swapFetched
		return Post, nil
	case swapFetched:
		if m.fits() {
			return Done, nil
		}
		m.Count.Torn++
		m.begin()
		m.look = m.load(m.L.PointerOff(m.Slot))
		m.state = swapDoubted
		return Post, nil
	}
	// A copy is not written while it is current. One that did not fit and was
	// current all the time is damaged.
	if m.result(m.look) == m.Pointer {
		return Done, memory.ErrRecord
	}
	m.state = swapLooked
	m.Tried++
	return m.Step()
}

func (m *SwapReader) fetch() {
	m.read(m.L.SwapOff(m.Slot, pointerIndex(m.Pointer)), m.L.PairAt(), m.L.SwapStride())
}

// fits reports whether Data is what the pointer names.
func (m *SwapReader) fits() bool {
	version, data, err := memory.Decode(m.Mem[m.L.PairAt():][:m.L.SwapStride()])
	m.Data = data
	return err == nil && version == PointerVersion(m.Pointer)
}

// SwapWriter writes if the version is still the one that the caller knows:
//
//	[WRITE copy, CMP_SWAP pointer]
//
// after a look at the pointer when that is not known.
type SwapWriter struct {
	SwapLook
	Owner   uint16
	Version uint64 // that is wanted
	Data    []byte
	Posted  bool // the pointer may have been moved
	moved   uint64
	looking bool
	Tried   int
}

func (m *SwapWriter) Step() (Verdict, error) {
	switch {
	case m.Posted:
		m.Posted = false
		found := m.result(m.look)
		if found != m.Pointer {
			m.Count.Failed++
			if err := m.point(found); err != nil {
				return Done, err
			}
			return Done, ErrVersionMismatch
		}
		m.Count.Acquired++
		m.Pointer = m.moved
		return Done, nil
	case m.looking:
		m.looking = false
		if err := m.point(m.result(m.look)); err != nil {
			return Done, err
		}
	// A version that is higher than what was seen is news from elsewhere.
	case !m.Known || PointerVersion(m.Pointer) < m.Version:
		m.begin()
		m.look = m.load(m.L.PointerOff(m.Slot))
		m.looking = true
		return Post, nil
	}
	if PointerVersion(m.Pointer) != m.Version {
		return Done, ErrVersionMismatch
	}
	m.begin()
	i, at := privateCopy(m.Owner, m.Pointer), m.L.WriteAt()
	n := memory.Encode(m.Mem[at:], m.Version+1, m.Data)
	m.Ops = append(m.Ops, Op{Kind: OpWrite, Off: m.L.SwapOff(m.Slot, i), At: at, N: n})
	m.moved = makePointer(i, m.Version+1)
	m.look = m.cmpSwap(m.L.PointerOff(m.Slot), m.Pointer, m.moved)
	m.Posted = true
	m.Tried++
	m.Count.Tries++
	return Post, nil
}
