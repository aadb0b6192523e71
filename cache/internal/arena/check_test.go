package arena

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// check sees that the arena's lists and counters say the same of each page: a slot is free, in
// quarantine or somebody's, and a page is in the list of its class exactly while it has slots to
// give out.
func (a *Arena) check(t testing.TB) {
	t.Helper()
	resting := make(map[int32]map[uint32]bool)
	for i, last := 0, uint64(0); i < a.limbo.len(); i++ {
		r := a.limbo.ring[(a.limbo.head+i)%len(a.limbo.ring)]
		require.GreaterOrEqual(t, r.seq, last, "quarantine is in the order of time")
		last = r.seq
		if resting[r.page] == nil {
			resting[r.page] = make(map[uint32]bool)
		}
		require.False(t, resting[r.page][r.slot], "page %d: slot %d is twice in quarantine", r.page, r.slot)
		resting[r.page][r.slot] = true
	}
	spare := make(map[int32]bool)
	for _, id := range a.spare {
		require.False(t, spare[id], "page %d is spare twice", id)
		spare[id] = true
	}
	listed := a.checkLists(t)
	want, draining := Stats{Total: len(a.pages) * a.pageSize, Spare: len(a.spare)}, 0
	for i := range a.pages {
		id, p := int32(i), &a.pages[i]
		if require.Equal(t, p.class < 0, spare[id], "page %d of class %d", id, p.class); p.class < 0 {
			require.Empty(t, resting[id], "page %d", id)
			require.Zero(t, p.used, "page %d", id)
			require.Nil(t, p.free, "page %d", id)
			require.False(t, p.draining, "page %d", id)
			continue
		}
		live := p.checkSlots(t, id, a.pageSize/a.classes[p.class].size, resting[id])
		want.Live += live * a.classes[p.class].size
		want.Limbo += len(resting[id]) * a.classes[p.class].size
		require.Equal(t, !p.draining && len(p.free) > 0, listed[id], "page %d gives out its %d free slots", id, len(p.free))
		if !listed[id] {
			require.Equal(t, [2]int32{-1, -1}, [2]int32{p.prev, p.next}, "page %d is in no list", id)
		}
		if p.draining {
			draining++
		}
	}
	require.LessOrEqual(t, draining, 1)
	require.Equal(t, want, a.Stats())
}

// checkLists answers which pages are in the list of their class.
func (a *Arena) checkLists(t testing.TB) map[int32]bool {
	t.Helper()
	listed := make(map[int32]bool)
	for ci := range a.classes {
		prev := int32(-1)
		for id := a.classes[ci].partial; id >= 0; id = a.pages[id].next {
			require.False(t, listed[id], "page %d is listed twice", id)
			listed[id] = true
			require.Equal(t, ci, int(a.pages[id].class), "page %d", id)
			require.Equal(t, prev, a.pages[id].prev, "page %d", id)
			prev = id
		}
	}
	return listed
}

// checkSlots answers how many of a page's slots are somebody's.
func (p *page) checkSlots(t testing.TB, id int32, slots int, resting map[uint32]bool) (live int) {
	t.Helper()
	require.Len(t, p.owners, slots, "page %d", id)
	free := make([]bool, slots)
	for _, s := range p.free {
		require.False(t, free[s], "page %d: slot %d is free twice", id, s)
		require.False(t, resting[s], "page %d: slot %d is free and in quarantine", id, s)
		require.Equal(t, none, p.owners[s], "page %d: slot %d is free", id, s)
		free[s] = true
	}
	for s := range resting {
		require.Equal(t, none, p.owners[s], "page %d: slot %d is in quarantine", id, s)
	}
	for _, o := range p.owners {
		if o != none {
			live++
		}
	}
	require.Equal(t, slots, live+len(p.free)+len(resting), "page %d: slots are lost", id)
	require.Equal(t, live+len(resting), p.used, "page %d", id)
	require.NotZero(t, p.used, "page %d is empty and has a class", id)
	return live
}
