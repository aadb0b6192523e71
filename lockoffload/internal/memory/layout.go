// Package memory defines where in a region lock words and records lie, and what they mean:
// the layout of slots, the two copies of a slot's data, and tags. It reads and writes bytes
// that it is given, and knows nothing of devices.
package memory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/operr"
)

var (
	// ErrConfig says that an argument is out of range.
	ErrConfig = operr.ErrConfig
	// ErrRecord says that neither copy of a record is valid.
	ErrRecord = errors.New("record is torn or damaged")
)

// A region begins with the session table, a cache line for each client, in which
// the client counts its heartbeats up. Then come the slots:
//
//	lock      0 when free, else the tag of the holder
//	fence     counter of fencing tokens
//	pointer   of the private copy that is current, with Layout.Swap
//	readers   one bit for each client, 64 to a word, of 512 at most
//	data      two copies, each with all records of the slot
//	copies    the private copies, with Layout.Swap
//
// Words are 64 bits in the host order of the target, which this package takes
// to be little endian, like the records. After the set-up all of it is changed
// by RDMA only, also by the target itself, since atomics of a device need not
// be atomic against those of a CPU.
const (
	lineSize = 64 // two clients, or two slots, never share a cache line

	lockWord    = 0
	fenceWord   = 8
	pointerWord = 16
	readerWords = 24
)

// Layout is lockoffload.Layout, which is documented in more detail.
type Layout struct {
	Slots   int // 1 to 2^30
	Size    int // bytes of data in a record, at most; 1 to 1 MiB
	Records int // in each slot; 0 means 1, at most 1024
	Clients int // sessions at a time; 0 means 64, at most 4096
	Swap    int // private copies in each slot, at most 4096
}

// WithDefaults returns the layout with the numbers that 0 stands for.
func (l Layout) WithDefaults() Layout {
	l.Records, l.Clients = cmp.Or(l.Records, 1), cmp.Or(l.Clients, 64)
	return l
}

// MostReaderBits is how many clients have a bit in each slot for readers. 4,096 bits would
// be half a KiB.
const MostReaderBits = 512

const maxRegion = 1 << 40

// Check returns an error for a layout, with defaults, that is out of range.
func (l Layout) Check() error {
	in := func(v, low, high int) bool { return low <= v && v <= high }
	if !in(l.Slots, 1, 1<<30) || !in(l.Size, 1, 1<<20) || !in(l.Records, 1, 1024) || !in(l.Clients, 1, 4096) || !in(l.Swap, 0, 4096) ||
		l.Slots > maxRegion/l.SlotStride() {
		return fmt.Errorf("lockoffload: layout %+v: %w", l, ErrConfig)
	}
	return nil
}

// Bytes returns the size of the memory that the layout needs.
func (l Layout) Bytes() int {
	l = l.WithDefaults()
	return l.Table() + l.Slots*l.SlotStride()
}

// The offsets below are in bytes from the start of the region, of layouts with
// defaults. They are asked for several times in each operation, which does not
// copy the layout for it.

func (l *Layout) Table() int       { return l.Clients * lineSize }
func (l *Layout) ReadersSize() int { return (l.readerBits() + 63) / 64 * 8 }
func (l *Layout) CopyStride() int  { return align(HeaderSize+l.bodySize(), 8) }
func (l *Layout) SwapStride() int  { return align(HeaderSize+l.Size, 8) }
func (l *Layout) PairSize() int    { return 2 * l.CopyStride() }
func (l *Layout) swapStart() int   { return readerWords + l.ReadersSize() + l.PairSize() }

func (l *Layout) SlotStride() int {
	return align(l.swapStart()+l.Swap*l.SwapStride(), lineSize)
}

// readerBits returns how many clients, the first ones, have a bit among a slot's readers.
func (l *Layout) readerBits() int { return min(l.Clients, MostReaderBits) }

// BeatOff returns the offset of the heartbeat word of the client with an owner number.
func (l *Layout) BeatOff(owner uint16) int { return (int(owner) - 1) * lineSize }

func (l *Layout) slotOff(slot int) int    { return l.Table() + slot*l.SlotStride() }
func (l *Layout) LockOff(slot int) int    { return l.slotOff(slot) + lockWord }
func (l *Layout) FenceOff(slot int) int   { return l.slotOff(slot) + fenceWord }
func (l *Layout) PointerOff(slot int) int { return l.slotOff(slot) + pointerWord }

// ReadersOff returns the offset of the first of the words with a bit for each reader.
func (l *Layout) ReadersOff(slot int) int { return l.slotOff(slot) + readerWords }

// HasReaderBit reports whether a client has a bit among the readers. Others take the lock
// word to read.
func (l *Layout) HasReaderBit(owner uint16) bool { return int(owner) <= l.readerBits() }

// ReaderBit returns the offset of the word, and the bit, of one client among the readers.
func (l *Layout) ReaderBit(slot int, owner uint16) (off int, bit uint64) {
	n := int(owner) - 1
	return l.ReadersOff(slot) + n/64*8, 1 << (n % 64)
}

// PairOff returns the offset of both copies of a slot's data, PairSize bytes.
func (l *Layout) PairOff(slot int) int { return l.ReadersOff(slot) + l.ReadersSize() }

// CopyOff returns the offset of one of the copies, 0 or 1.
func (l *Layout) CopyOff(slot, which int) int { return l.PairOff(slot) + which*l.CopyStride() }

// SwapOff returns the offset of one of the private copies of a slot.
func (l *Layout) SwapOff(slot, i int) int {
	return l.slotOff(slot) + l.swapStart() + i*l.SwapStride()
}

func align(n, to int) int { return (n + to - 1) / to * to }

// The local memory for remote work on a slot has the results of LocalWords atomics, the
// readers' words, both copies as they were read, and the copy to be written. The offsets
// below are in it.
const LocalWords = 16

// LocalSize returns the size of the local memory, in bytes.
func (l *Layout) LocalSize() int { return l.WriteAt() + l.CopyStride() }

// ReadersAt returns an offset right before the copies, as in the region.
func (l *Layout) ReadersAt() int { return l.PairAt() - l.ReadersSize() }
func (l *Layout) PairAt() int    { return align(LocalWords*8+l.ReadersSize(), lineSize) }
func (l *Layout) WriteAt() int   { return l.PairAt() + l.PairSize() }

// Scan finds the few slots, among many, that are locked or have readers. It computes their
// place once, and takes a few instructions for each of the others.
type Scan struct{ first, stride int }

// Scan returns the scan of a layout with defaults.
func (l *Layout) Scan() Scan { return Scan{l.slotOff(0), l.SlotStride()} }

// Busy returns the first slot, from slot to end, with a lock that is held or with readers
// that have a bit of the masks, each for a word of readers from the first on. It returns
// end if there is none.
func (s Scan) Busy(mem []byte, slot, end int, readers []uint64) int {
	var first uint64 // of the masks, which is the only one in most layouts
	if len(readers) > 0 {
		first, readers = readers[0], readers[1:]
	}
	for mem = mem[s.first+slot*s.stride:]; slot < end; slot++ {
		head := (*[readerWords + 8]byte)(mem) // one check of bounds for its words
		if LoadWord(head[:], lockWord) != 0 || LoadWord(head[:], readerWords)&first != 0 {
			break
		}
		for i, mask := range readers {
			if LoadWord(mem, readerWords+8+8*i)&mask != 0 {
				return slot
			}
		}
		mem = mem[s.stride:]
	}
	return slot
}

// Format makes all locks free and all records empty. Versions and fencing tokens begin at
// first, which has VersionBits bits at most.
func (l Layout) Format(mem []byte, first uint64) {
	clear(mem[:l.Bytes()])
	for slot := range l.Slots {
		storeWord(mem, l.FenceOff(slot), first)
		storeWord(mem, l.PointerOff(slot), first) // to copy 0
		for which := range 2 {
			c := mem[l.CopyOff(slot, which):][:l.CopyStride()]
			for r := range l.Records {
				l.Put(c, r, first, nil)
			}
			l.Seal(c, first)
		}
		for i := range l.Swap {
			Encode(mem[l.SwapOff(slot, i):], first, nil)
		}
	}
}

// VersionBits is the width of a version: the pointer to a private copy has it beside the
// number of the copy.
const VersionBits = 52

// LoadWord returns a word of memory in the host's byte order.
func LoadWord(mem []byte, at int) uint64 { return binary.NativeEndian.Uint64(mem[at:]) }

func storeWord(mem []byte, at int, v uint64) { binary.NativeEndian.PutUint64(mem[at:], v) }
