package shaper

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"time"
)

// FlowConfig describes a flow: a queue pair, usually.
type FlowConfig struct {
	ID       uint64 // its flow queue is found by a hash of it
	Weight   int    // of the deficit policy; 0 means 1
	Priority int    // of the priority policy
	MaxReads int    // GETs and atomics that it may have outstanding (max_rd_atomic); 0 means any
	Depth    int    // work requests that it may have outstanding; 0 means any
	Patient  bool   // the program gives its credit back: it is never overdue
}

// Flow is a flow queue.
type Flow int32

// ErrFlows: there is a flow of that number already.
var ErrFlows = errors.New("the flow exists")

type flow struct {
	FlowConfig
	used     bool
	commands int // not finished

	gets, puts, fences list
	failed             list // sub-requests to be issued again
	seq                uint64

	// OrdPktActive is the count that a unit keeps of the request packets outstanding.
	// It moves with the flow from unit to unit.
	ordPktActive int
	posted       int // of all kinds
	deficit      int64
	passes       int // how often it was passed over since its last grant
	lent         int // request packets outstanding that are overdue
	heard        time.Duration
	down         bool

	unit    int32 // that it is assigned to
	waits   bool  // for one
	turn    int64 // presented of its turn: request packets, or bytes
	waiting int32 // the next one that waits
}

// table finds the flow queue of a flow by its hash.
type table struct {
	seed  maphash.Seed
	place []int32 // of flows, none, or gone
	used  int
}

const gone = -2

func (t *table) home(id uint64) int {
	return int(maphash.Comparable(t.seed, id) & uint64(len(t.place)-1))
}

func (s *Shaper) lookup(id uint64) (at int, found bool) {
	t := &s.table
	if len(t.place) == 0 {
		return 0, false
	}
	at = t.home(id)
	for range t.place {
		switch i := t.place[at]; {
		case i == none:
			return at, false
		case i >= 0 && s.flows[i].ID == id:
			return at, true
		}
		at = (at + 1) & (len(t.place) - 1)
	}
	return at, false
}

// FlowOf returns the flow queue of a flow.
func (s *Shaper) FlowOf(id uint64) (Flow, bool) {
	at, ok := s.lookup(id)
	if !ok {
		return none, false
	}
	return Flow(s.table.place[at]), true
}

// AddFlow makes a flow queue.
func (s *Shaper) AddFlow(c FlowConfig) (Flow, error) {
	if c.Weight < 0 || c.MaxReads < 0 || c.Depth < 0 {
		return none, ErrConfig
	}
	c.Weight = max(c.Weight, 1)
	c.MaxReads, c.Depth = cmp.Or(c.MaxReads, math.MaxInt), cmp.Or(c.Depth, math.MaxInt)
	if _, ok := s.lookup(c.ID); ok {
		return none, ErrFlows
	}
	if 2*(s.table.used+1) > len(s.table.place) {
		s.rehash()
	}
	i := int32(none)
	for k := range s.flows {
		if !s.flows[k].used {
			i = int32(k)
			break
		}
	}
	if i == none {
		s.flows = append(s.flows, flow{})
		i = int32(len(s.flows) - 1)
	}
	empty := list{none, none}
	s.flows[i] = flow{FlowConfig: c, used: true, gets: empty, puts: empty, fences: empty, failed: empty, unit: none, waiting: none}
	at, _ := s.lookup(c.ID)
	s.table.place[at] = i
	s.table.used++
	return Flow(i), nil
}

// rehash makes room, and forgets the places of flows that are gone.
func (s *Shaper) rehash() {
	n := 16
	live := 0
	for i := range s.flows {
		if s.flows[i].used {
			live++
		}
	}
	for n < 4*(live+1) {
		n *= 2
	}
	s.table.place = make([]int32, n)
	for i := range s.table.place {
		s.table.place[i] = none
	}
	s.table.used = live
	for i := range s.flows {
		if s.flows[i].used {
			at, _ := s.lookup(s.flows[i].ID)
			s.table.place[at] = int32(i)
		}
	}
}

func (s *Shaper) valid(f Flow) bool { return f >= 0 && int(f) < len(s.flows) && s.flows[f].used }

// RemoveFlow forgets a flow that has nothing under way, and reports whether it did.
func (s *Shaper) RemoveFlow(f Flow) bool {
	if !s.valid(f) || s.flows[f].commands > 0 {
		return false
	}
	s.idle(int32(f))
	at, _ := s.lookup(s.flows[f].ID)
	s.table.place[at] = gone
	s.flows[f].used = false
	return true
}

// Down holds a flow while its queue pair is in error. What was granted comes back by
// [Shaper.Failed].
func (s *Shaper) Down(f Flow) { s.flows[f].down = true }

// Up ends Down: sub-requests that failed go again, and nothing else that was granted.
func (s *Shaper) Up(f Flow) {
	s.flows[f].down = false
	s.ready(int32(f))
}

// Abandon ends all requests of a flow: what was not granted never is.
func (s *Shaper) Abandon(f Flow) {
	s.schedule()
	for i := range s.cmds {
		if c := &s.cmds[i]; c.flow == int32(f) && !c.ended {
			s.Cancel(Request(i))
		}
	}
}
