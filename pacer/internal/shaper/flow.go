package shaper

import (
	"cmp"
	"math"
	"time"
)

// FlowConfig describes a flow: a queue pair, usually.
type FlowConfig struct {
	Weight   int  // of the deficit policy; 0 means 1
	Priority int  // of the priority policy
	MaxReads int  // GETs and atomics that it may have outstanding (max_rd_atomic); 0 means any
	Depth    int  // work requests that it may have outstanding; 0 means any
	Patient  bool // the program gives its credit back: it is never overdue
}

// Flow is a flow queue.
type Flow int32

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

// AddFlow makes a flow queue.
func (s *Shaper) AddFlow(c FlowConfig) (Flow, error) {
	if c.Weight < 0 || c.MaxReads < 0 || c.Depth < 0 {
		return none, ErrConfig
	}
	c.Weight = max(c.Weight, 1)
	c.MaxReads, c.Depth = cmp.Or(c.MaxReads, math.MaxInt), cmp.Or(c.Depth, math.MaxInt)
	i := 0
	for i < len(s.flows) && s.flows[i].used {
		i++
	}
	if i == len(s.flows) {
		s.flows = append(s.flows, flow{})
	}
	empty := list{none, none}
	s.flows[i] = flow{FlowConfig: c, used: true, gets: empty, puts: empty, fences: empty, failed: empty, unit: none, waiting: none}
	return Flow(i), nil
}

func (s *Shaper) valid(f Flow) bool { return f >= 0 && int(f) < len(s.flows) && s.flows[f].used }

// RemoveFlow forgets a flow that has nothing under way, and reports whether it did.
func (s *Shaper) RemoveFlow(f Flow) bool {
	if !s.valid(f) || s.flows[f].commands > 0 {
		return false
	}
	s.idle(int32(f))
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
	for i := range s.cmds {
		if s.cmds[i].flow == int32(f) {
			s.Cancel(Request(i))
		}
	}
}
