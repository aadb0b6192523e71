package lockoffload

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// A region begins with the session table, one line for each client, in which
// the client counts its heartbeats up. Then come the slots:
//
//	lock      0 when free, else the tag of the holder
//	tickets   next ticket 32 bits | ticket being served 32 bits
//	fence     counter of fencing tokens
//	pointer   of the private copy that is current, with Layout.Swap
//	readers   one bit for each client, 64 to a word, of 512 at most
//	data      two copies, each with all records of the slot
//	queue     one word for each client, of 8 at most: who has the ticket, modulo the number
//	copies    the private copies, with Layout.Swap
//
// Words are 64 bits in the host order of the target, which this package takes
// to be little endian, like the records. After the set-up all of it is changed
// by RDMA only, also by the target itself, since atomics of a device need not
// be atomic against those of a CPU.
const (
	lineSize = 64 // two clients, or two slots, never share a cache line

	lockWord    = 0
	ticketWord  = 8
	fenceWord   = 16
	pointerWord = 24
	readerWords = 32
)

// Layout says where lock words and records lie. Both sides use the same one;
// the [Invite] carries it.
type Layout struct {
	Slots   int // sets of records with one lock each, 1 to 2^30
	Size    int // bytes of data in a record, at most; 1 to 1 MiB
	Records int // in each slot, which are read and written together; 0 means 1, at most 1024
	// Clients are the sessions at a time; 0 means 64, at most 4096. A slot does not
	// grow with those beyond 512, who hold [Shared] locks one at a time.
	Clients int
	Swap    int // private copies in each slot, two for each owner number that is to use [Client.SwapWrite]; at most 4096
}

func (l Layout) withDefaults() Layout {
	if l.Records == 0 {
		l.Records = 1
	}
	if l.Clients == 0 {
		l.Clients = 64
	}
	return l
}

// What a slot has for readers and tickets does not grow with the clients beyond these
// numbers: 4,096 bits and as many places would be 33 KB a slot.
const (
	mostReaderBits = 512
	mostPlaces     = 8
)

const maxRegion = 1 << 40

// check is for layouts with defaults.
func (l Layout) check() error {
	in := func(v, low, high int) bool { return low <= v && v <= high }
	if !in(l.Slots, 1, 1<<30) || !in(l.Size, 1, 1<<20) || !in(l.Records, 1, 1024) || !in(l.Clients, 1, 4096) || !in(l.Swap, 0, 4096) ||
		l.Slots > maxRegion/l.slotStride() {
		return fmt.Errorf("lockoffload: layout %+v: %w", l, ErrConfig)
	}
	return nil
}

// Bytes is the memory that the layout needs.
func (l Layout) Bytes() int {
	l = l.withDefaults()
	return l.table() + l.Slots*l.slotStride()
}

// The offsets below are in bytes from the start of the region, of layouts with
// defaults. They are asked for several times in each operation, which does not
// copy the layout for it.

func (l *Layout) table() int       { return l.Clients * lineSize }
func (l *Layout) readersSize() int { return (l.readerBits() + 63) / 64 * 8 }
func (l *Layout) copyStride() int  { return align(headerSize+l.bodySize(), 8) }
func (l *Layout) swapStride() int  { return align(headerSize+l.Size, 8) }
func (l *Layout) pairSize() int    { return 2 * l.copyStride() }
func (l *Layout) queueStart() int  { return readerWords + l.readersSize() + l.pairSize() }

func (l *Layout) slotStride() int {
	return align(l.queueStart()+l.places()*8+l.Swap*l.swapStride(), lineSize)
}

// readerBits is how many clients, the first ones, have a bit among a slot's readers.
func (l *Layout) readerBits() int { return min(l.Clients, mostReaderBits) }

// places is how many tickets, the next ones to be served, have room for their owner.
func (l *Layout) places() int { return min(l.Clients, mostPlaces) }

// beatOff is the heartbeat word of the client with an owner number.
func (l *Layout) beatOff(owner uint16) int { return (int(owner) - 1) * lineSize }

func (l *Layout) slotOff(slot int) int    { return l.table() + slot*l.slotStride() }
func (l *Layout) lockOff(slot int) int    { return l.slotOff(slot) + lockWord }
func (l *Layout) ticketOff(slot int) int  { return l.slotOff(slot) + ticketWord }
func (l *Layout) fenceOff(slot int) int   { return l.slotOff(slot) + fenceWord }
func (l *Layout) pointerOff(slot int) int { return l.slotOff(slot) + pointerWord }

// readersOff is the first of the words with a bit for each reader.
func (l *Layout) readersOff(slot int) int { return l.slotOff(slot) + readerWords }

// hasReaderBit tells whether a client has a bit among the readers. Others take the lock
// word to read, see wordReader.
func (l *Layout) hasReaderBit(owner uint16) bool { return int(owner) <= l.readerBits() }

// readerBit is the word and the bit of one client among the readers.
func (l *Layout) readerBit(slot int, owner uint16) (off int, bit uint64) {
	n := int(owner) - 1
	return l.readersOff(slot) + n/64*8, 1 << (n % 64)
}

// pairOff is where both copies of a slot's data begin, pairSize bytes.
func (l *Layout) pairOff(slot int) int { return l.readersOff(slot) + l.readersSize() }

// copyOff is one of the copies, 0 or 1.
func (l *Layout) copyOff(slot, which int) int { return l.pairOff(slot) + which*l.copyStride() }

// queueOff is the word that says who has a ticket.
func (l *Layout) queueOff(slot int, ticket uint32) int {
	return l.slotOff(slot) + l.queueStart() + int(ticket%uint32(l.places()))*8
}

// swapOff is one of the private copies of a slot.
func (l *Layout) swapOff(slot, i int) int {
	return l.slotOff(slot) + l.queueStart() + l.places()*8 + i*l.swapStride()
}

func align(n, to int) int { return (n + to - 1) / to * to }

// Region is a target's registered memory with lock words and records.
type Region struct {
	Layout
	mr *verbs.MR
}

// NewRegion lays out the start of mr, which needs remote READ, WRITE and atomic
// access, and must not have [verbs.RelaxedOrder]: all locks free, all records empty with version 0. It writes with the
// CPU, so no peer may know the memory yet; afterwards the program must change
// it by RDMA only. The memory stays the caller's to close.
func NewRegion(mr *verbs.MR, l Layout) (*Region, error) {
	l = l.withDefaults()
	if err := l.check(); err != nil {
		return nil, err
	}
	if mr.Len() < l.Bytes() {
		return nil, fmt.Errorf("lockoffload: region of %d bytes, layout needs %d: %w", mr.Len(), l.Bytes(), ErrConfig)
	}
	if mr.Access()&verbs.RelaxedOrder != 0 {
		return nil, fmt.Errorf("lockoffload: region with relaxed ordering: an unlock command could overtake the WRITE before it: %w", ErrConfig)
	}
	if mr.Region().Addr%8 != 0 {
		return nil, fmt.Errorf("lockoffload: region at address %#x: atomics need words of 8 bytes that are aligned: %w", mr.Region().Addr, ErrConfig)
	}
	if owned(mr.Bytes()) {
		return nil, fmt.Errorf("lockoffload: the memory has a region that is served: %w", ErrConfig)
	}
	l.format(mr.Bytes())
	return &Region{Layout: l, mr: mr}, nil
}

func (l Layout) format(mem []byte) {
	clear(mem[:l.Bytes()])
	for slot := range l.Slots {
		for which := range 2 {
			l.seal(mem[l.copyOff(slot, which):], 0)
		}
		for i := range l.Swap {
			encode(mem[l.swapOff(slot, i):], 0, nil)
		}
	}
}

// Remote is what peers need to reach the region.
func (r *Region) Remote() verbs.Region { return r.mr.Region() }
