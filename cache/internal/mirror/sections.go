package mirror

import "github.com/goverbs/goverbs/cache/internal/wire"

// sections counts READs under way in two generations. When the older one is empty, no
// READ is under way that was begun before the younger one was: then they turn.
type sections struct {
	open  [2]int
	young uint8
	since uint64 // what had been applied when the younger generation began
	quiet uint64
	ended uint64 // epochs that are over: their sections are not counted when they end
}

// Section is one READ, or several that follow from each other: from the moment at which
// its pointer is looked up (or the bucket is READ that it stands in) to its end.
type Section struct {
	generation uint8
	life       uint64
}

func (s *sections) restart(seq uint64) {
	*s = sections{since: seq, quiet: seq, ended: s.ended + 1}
}

// Enter begins a section, before the pointer is looked up.
func (m *Mirror) Enter() Section {
	m.reads.open[m.reads.young]++
	return Section{m.reads.young, m.reads.ended}
}

// Leave ends it, when the READ has completed.
func (m *Mirror) Leave(s Section) {
	if s.life == m.reads.ended {
		m.reads.open[s.generation]--
	}
}

// Horizon returns what the server has to hear now and then, twice in a lease at least.
func (m *Mirror) Horizon() wire.Horizon {
	s := &m.reads
	for range 2 {
		if s.open[1-s.young] > 0 {
			break
		}
		s.quiet = s.since
		s.young, s.since = 1-s.young, m.applied
	}
	return wire.Horizon{Epoch: m.epoch, Applied: m.applied, Quiet: s.quiet}
}
