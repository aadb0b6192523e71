package lockoffload

import (
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// The pointer word of a slot says which of its private copies is current:
// index 16 bits | version 48 bits. It is 0 at first: copy 0, version 0.
//
// Two copies belong to each owner number, for ever: 2(n-1) and 2(n-1)+1 to
// owner n. At most one of the two is current; the other one is the owner's to
// write at any time, for nobody accepts it: a reader wants the copy that the
// pointer names to have the version that the pointer names. A write prepares
// the copy that is not current, then moves the pointer to it:
//
//	[WRITE copy, CMP_SWAP pointer old -> new]
//
// The WRITE is executed before the CMP_SWAP behind it, so that a pointer never
// names a copy that is not there. The version grows with each move: a pointer
// that was seen never comes back. That a copy of the owner's is current, the
// owner knows even if it has not seen the pointer for long, since nobody else
// can make it so; after an outcome that it does not know, and in a new session,
// it looks first.
//
// A client that dies leaves nothing to take back: what it wrote without moving
// the pointer, the next owner of the number overwrites; what it moved the
// pointer to is whole and stays until somebody writes.

const swapVersionBits = 48

func makePointer(index int, version uint64) uint64 {
	return uint64(index)<<swapVersionBits | version
}

func pointerIndex(p uint64) int      { return int(p >> swapVersionBits) }
func pointerVersion(p uint64) uint64 { return p & (1<<swapVersionBits - 1) }

// privateCopy is the one of an owner's two copies that is not current.
func privateCopy(owner uint16, pointer uint64) int {
	first := 2 * (int(owner) - 1)
	if pointerIndex(pointer) == first {
		return first + 1
	}
	return first
}

// swapLook is what the two operations have in common: a pointer, perhaps known.
type swapLook struct {
	work
	slot    int
	pointer uint64
	known   bool // pointer was seen, maybe long ago
	look    int  // of the list
}

func (m *swapLook) undo() (verdict, error) { return done, nil }

// point takes what a look at the pointer found, or refuses it.
func (m *swapLook) point(p uint64) error {
	if pointerIndex(p) >= m.l.Swap {
		m.known = false
		return fmt.Errorf("%w: pointer to copy %d of %d", memory.ErrRecord, pointerIndex(p), m.l.Swap)
	}
	m.pointer, m.known = p, true
	return nil
}

// swapReader reads the current copy:
//
//	[READ copy, FETCH_ADD pointer + 0]   when the pointer was seen before and is the same
//	[FETCH_ADD pointer + 0] [READ copy]  otherwise
type swapReader struct {
	swapLook
	state   swapState
	deliver func(data []byte) error
	tried   int
}

type swapState uint8

const (
	swapIdle swapState = iota
	swapGuessed
	swapLooked
	swapFetched
	swapDoubted // the copy did not fit: look whether the pointer moved
)

func (m *swapReader) step() (verdict, error) {
	switch m.state {
	case swapIdle:
		m.begin()
		if m.known {
			m.fetch()
			m.state = swapGuessed
		} else {
			m.state = swapLooked
		}
		m.look = m.load(m.l.PointerOff(m.slot))
		m.tried++
		return post, nil
	case swapGuessed, swapLooked:
		before, guessed := m.pointer, m.state == swapGuessed
		if err := m.point(m.result(m.look)); err != nil {
			return done, err
		}
		if guessed && m.pointer == before {
			if data, ok := m.fits(); ok {
				return done, m.deliver(data)
			}
		}
		m.begin()
		m.fetch()
		m.state = swapFetched
		return post, nil
	case swapFetched:
		if data, ok := m.fits(); ok {
			return done, m.deliver(data)
		}
		m.count.Torn++
		m.begin()
		m.look = m.load(m.l.PointerOff(m.slot))
		m.state = swapDoubted
		return post, nil
	}
	// A copy is not written while it is current. One that did not fit and was
	// current all the time is damaged.
	if m.result(m.look) == m.pointer {
		return done, memory.ErrRecord
	}
	m.state = swapLooked
	m.tried++
	return m.step()
}

func (m *swapReader) fetch() {
	m.read(m.l.SwapOff(m.slot, pointerIndex(m.pointer)), m.l.PairAt(), m.l.SwapStride())
}

func (m *swapReader) fits() ([]byte, bool) {
	version, data, err := memory.Decode(m.mem[m.l.PairAt():][:m.l.SwapStride()])
	return data, err == nil && version == pointerVersion(m.pointer)
}

// swapWriter writes if the version is still the one that the caller knows:
//
//	[WRITE copy, CMP_SWAP pointer]
//
// after a look at the pointer when that is not known.
type swapWriter struct {
	swapLook
	owner   uint16
	version uint64 // that is wanted
	data    []byte
	posted  bool // the pointer may have been moved
	moved   uint64
	looking bool
	tried   int
}

func (m *swapWriter) step() (verdict, error) {
	switch {
	case m.posted:
		m.posted = false
		found := m.result(m.look)
		if found != m.pointer {
			m.count.Failed++
			if err := m.point(found); err != nil {
				return done, err
			}
			return done, ErrDiffers
		}
		m.count.Acquired++
		m.pointer = m.moved
		return done, nil
	case m.looking:
		m.looking = false
		if err := m.point(m.result(m.look)); err != nil {
			return done, err
		}
	// A version that is higher than what was seen is news from elsewhere.
	case !m.known || pointerVersion(m.pointer) < m.version:
		m.begin()
		m.look = m.load(m.l.PointerOff(m.slot))
		m.looking = true
		return post, nil
	}
	if pointerVersion(m.pointer) != m.version {
		return done, ErrDiffers
	}
	m.begin()
	i, at := privateCopy(m.owner, m.pointer), m.l.WriteAt()
	n := memory.Encode(m.mem[at:], m.version+1, m.data)
	m.ops = append(m.ops, op{kind: opWrite, off: m.l.SwapOff(m.slot, i), at: at, n: n})
	m.moved = makePointer(i, m.version+1)
	m.look = m.cmpSwap(m.l.PointerOff(m.slot), m.pointer, m.moved)
	m.posted = true
	m.tried++
	m.count.Tries++
	return post, nil
}
