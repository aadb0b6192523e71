package lockoffload

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Layout says where lock words and records lie. Both sides use the same one;
// the [SessionInfo] carries it.
type Layout struct {
	Slots   int // sets of records with one lock each, 1 to 2^30
	Size    int // bytes of data in a record, at most; 1 to 1 MiB
	Records int // in each slot, which are read and written together; 0 means 1, at most 1024
	// Clients are the sessions at a time; 0 means 64, at most 4096. A slot does not
	// grow with clients beyond 512, which hold [Shared] locks one at a time.
	Clients int
	Swap    int // private copies in each slot, two for each owner number that is to use [Client.SwapWrite]; at most 4096
}

// Bytes returns the size of the memory that the layout needs.
func (l Layout) Bytes() int { return memory.Layout(l).Bytes() }

func (l Layout) withDefaults() Layout { return Layout(memory.Layout(l).WithDefaults()) }

// check returns an error for a layout, with defaults, that is out of range.
func (l Layout) check() error { return memory.Layout(l).Check() }

// layoutSize is the length of a layout in messages, in bytes.
const layoutSize = 8 + 4*4

// append adds a layout with defaults to a message.
func (l Layout) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, uint64(l.Slots))
	for _, v := range []int{l.Size, l.Records, l.Clients, l.Swap} {
		b = be.AppendUint32(b, uint32(v))
	}
	return b
}

// decodeLayout decodes layoutSize bytes that append made; anything else is refused with
// [ErrConfig].
func decodeLayout(b []byte) (Layout, error) {
	be := binary.BigEndian
	slots := be.Uint64(b)
	if slots > 1<<30 {
		return Layout{}, fmt.Errorf("%w: layout of %d slots", ErrConfig, slots)
	}
	l := Layout{Slots: int(slots), Size: int(be.Uint32(b[8:])), Records: int(be.Uint32(b[12:])), Clients: int(be.Uint32(b[16:])), Swap: int(be.Uint32(b[20:]))}
	if l != l.withDefaults() {
		return Layout{}, fmt.Errorf("%w: layout %+v", ErrConfig, l)
	}
	return l, l.check()
}
