package evict

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// check sees that each item is in the list that it says, once, and that the lists' counters and
// links agree with their items.
func (q *Queue) check(t testing.TB) {
	t.Helper()
	seen := make(map[uint32]uint8)
	for where, l := range map[uint8]*list{inSmall: &q.small, inMain: &q.main} {
		n, bytes, prev := 0, 0, nil32
		for i := l.head; i != nil32; i = q.nodes[i].next {
			require.NotContains(t, seen, i, "item %d is in a list twice", i)
			seen[i] = where
			require.Equal(t, prev, q.nodes[i].prev, "item %d", i)
			require.LessOrEqual(t, q.nodes[i].freq, uint8(maxFreq), "item %d", i)
			n, bytes, prev = n+1, bytes+int(q.nodes[i].size), i
		}
		require.Equal(t, prev, l.tail)
		require.Equal(t, n, l.n)
		require.Equal(t, bytes, l.bytes)
	}
	for i := range q.nodes {
		require.Equal(t, seen[uint32(i)], q.nodes[i].where, "item %d", i)
	}
	q.ghost.check(t)
}

// check sees that what is remembered is in the order in which it was added, and can be forgotten.
func (g *ghost) check(t testing.TB) {
	t.Helper()
	first := g.turn - uint64(len(g.fifo)-g.head) // turn of the oldest
	for f, turn := range g.seen {
		require.GreaterOrEqual(t, turn, first, "%d is remembered for ever", f)
		require.Less(t, turn, g.turn)
		require.Equal(t, f, g.fifo[g.head+int(turn-first)], "at the turn of %d", f)
	}
}

// The queue and a plain model of it, item by item: which list each is in, and whom Evict chooses.
func TestAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for round := range 6 {
		q, m := New(), model{}
		items := 60 + round%2*300 // more than are remembered at least
		for n := range 1000 + round%2*1000 {
			item, fingerprint := uint32(rng.IntN(items)), uint64(rng.IntN(items*3/2))
			i := m.find(item)
			switch op := rng.IntN(10); {
			case op < 4 && i == nil:
				size := 1 + rng.IntN(50)
				q.Insert(item, fingerprint, size)
				m.insert(modelItem{item: item, fingerprint: fingerprint, size: size})
			case op < 6 && i != nil:
				q.Access(item)
				i.freq = min(i.freq+1, 3)
			case op == 6 && i != nil:
				size := 1 + rng.IntN(50)
				q.Resize(item, size)
				i.size = size
			case op == 7:
				if int(item) < len(q.nodes) {
					q.Remove(item)
					m.remove(item)
				}
			case op > 7:
				got, ok := q.Evict()
				want, has := m.evict()
				require.Equal(t, has, ok)
				require.Equal(t, want, got)
			}
			if n%8 == 0 {
				q.check(t)
			}
			require.Equal(t, len(m.small)+len(m.main), q.Len())
			require.Equal(t, len(m.main), q.main.n)
		}
	}
}

type modelItem struct {
	item        uint32
	fingerprint uint64
	size, freq  int
}

// model is S3-FIFO of slices: the next to go is the first. ghosts are fingerprints, the oldest
// first.
type model struct {
	small, main []modelItem
	ghosts      []uint64
}

func (m *model) find(item uint32) *modelItem {
	for _, l := range [][]modelItem{m.small, m.main} {
		for i := range l {
			if l[i].item == item {
				return &l[i]
			}
		}
	}
	return nil
}

func (m *model) insert(it modelItem) {
	// One that was added again is where it was added last.
	found := false
	for i, g := range m.ghosts {
		if g == it.fingerprint {
			m.ghosts[i], found = ^uint64(0), true // its place is not another's
		}
	}
	if found {
		m.main = append(m.main, it)
	} else {
		m.small = append(m.small, it)
	}
}

func (m *model) remove(item uint32) {
	for _, l := range []*[]modelItem{&m.small, &m.main} {
		for i := range *l {
			if (*l)[i].item == item {
				*l = append((*l)[:i], (*l)[i+1:]...)
				return
			}
		}
	}
}

func (m *model) evict() (uint32, bool) {
	for {
		small, main := 0, 0
		for _, it := range m.small {
			small += it.size
		}
		for _, it := range m.main {
			main += it.size
		}
		switch {
		case len(m.small) > 0 && (small*10 >= small+main || len(m.main) == 0):
			it := m.small[0]
			m.small = m.small[1:]
			if it.freq > 0 {
				it.freq = 0
				m.main = append(m.main, it)
				continue
			}
			m.ghosts = append(m.ghosts, it.fingerprint)
			if most := max(len(m.main), leastGhosts); len(m.ghosts) > most {
				m.ghosts = m.ghosts[len(m.ghosts)-most:]
			}
			return it.item, true
		case len(m.main) > 0:
			it := m.main[0]
			m.main = m.main[1:]
			if it.freq == 0 {
				return it.item, true
			}
			it.freq--
			m.main = append(m.main, it)
		default:
			return 0, false
		}
	}
}
