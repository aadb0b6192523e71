package lockoffload

import (
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

// target identifies the target of a client, which must stay the same as long as the client
// lives: versions and locks of one target mean nothing at another.
type target struct {
	layout     Layout
	generation uint64
}

// accepts returns an error unless other is the same target.
func (t target) accepts(other target) error {
	switch {
	case t.generation != other.generation:
		return ErrRestarted
	case t.layout != other.layout:
		return fmt.Errorf("%w: the target has another layout", ErrConfig)
	}
	return nil
}

// wireTarget is a target in messages.
type wireTarget struct {
	Slots                        uint64
	Size, Records, Clients, Swap uint32
	Generation                   uint64
}

func (t target) wire() wireTarget {
	l := t.layout
	return wireTarget{uint64(l.Slots), uint32(l.Size), uint32(l.Records), uint32(l.Clients), uint32(l.Swap), t.generation}
}

// target returns an error that is [ErrConfig] for what no target has.
func (w wireTarget) target() (target, error) {
	l := Layout{int(min(w.Slots, 1<<31)), int(w.Size), int(w.Records), int(w.Clients), int(w.Swap)}
	if l != l.withDefaults() {
		return target{}, fmt.Errorf("%w: layout %+v", ErrConfig, l)
	}
	return target{l, w.Generation}, l.check()
}
