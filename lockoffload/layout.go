package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

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

// Bytes is the memory that the layout needs.
func (l Layout) Bytes() int { return memory.Layout(l).Bytes() }

func (l Layout) withDefaults() Layout { return Layout(memory.Layout(l).WithDefaults()) }

// check is for layouts with defaults.
func (l Layout) check() error { return memory.Layout(l).Check() }
