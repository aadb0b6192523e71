package fence

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// A client that is gone costs nothing until it holds up memory, or there are many.
func TestGoneIsNotLate(t *testing.T) {
	f := Fence{Every: time.Second}
	for id := range uint64(MaxGone - 1) {
		f.Gone(id)
		f.Gone(id)
	}
	require.False(t, f.Begin(0))
	require.Equal(t, MaxGone-1, f.Len())
	f.Gone(MaxGone)
	require.True(t, f.Begin(0))
	require.True(t, f.IsGone(MaxGone))
	require.False(t, f.IsGone(MaxGone+1))
}

// All late clients go together, with the clients that are gone; the next replacement is a while later.
func TestOneReplacementForAll(t *testing.T) {
	f := Fence{Every: time.Second}
	f.Late(1)
	f.Late(2)
	f.Gone(3)
	require.True(t, f.Begin(0))
	require.False(t, f.Begin(5*time.Second), "one at a time")
	f.Opened()
	require.ElementsMatch(t, []uint64{1, 2, 3}, f.Closed())
	require.Zero(t, f.Len())
	require.False(t, f.Begin(5*time.Second), "nobody is late")
	f.Late(4)
	require.True(t, f.Begin(5*time.Second))
	f.Opened()
	f.Late(5)
	require.Equal(t, []uint64{4}, f.Closed(), "who was late after the new target was there may know it")
	require.False(t, f.Begin(6*time.Second-1))
	require.True(t, f.Begin(6*time.Second))
	f.Opened()
	require.Equal(t, []uint64{5}, f.Closed())
	f.Want()
	require.False(t, f.Begin(7*time.Second-1))
	require.True(t, f.Begin(7*time.Second), "one that could not be made")
}

// Whatever happens in whatever order: no client is forgotten that may READ, and each late client is
// forgotten, two replacements later at most.
func TestNobodyReadsWhoIsForgotten(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 200 {
		f := Fence{Every: 10}
		now, next := time.Duration(0), uint64(0)
		target, oldest, opened := 1, 1, true // the newest one, and the oldest that responds
		knows := map[uint64]int{}            // the newest target that a client was told of
		live, late := map[uint64]bool{}, map[uint64]int{}
		step := func() {
			switch rng.IntN(6) {
			case 0:
				next++
				knows[next], live[next] = target, true
			case 1, 2:
				for id := range live { // any
					delete(live, id)
					if rng.IntN(2) == 0 {
						f.Gone(id)
					} else {
						f.Late(id)
						late[id] = target
					}
					break
				}
			case 3:
				if f.Begin(now) {
					opened = false
				}
			case 4:
				if !opened {
					opened = true
					target++
					f.Opened()
					for id := range live {
						require.False(t, f.IsGone(id))
						knows[id] = target
					}
				}
			case 5:
				if opened && oldest < target {
					oldest = target
					for _, id := range f.Closed() {
						require.Less(t, knows[id], oldest, "it may READ")
						require.False(t, live[id])
						delete(knows, id)
						delete(late, id)
					}
				}
			}
			now += time.Duration(rng.IntN(8))
			for id, at := range late {
				require.LessOrEqual(t, oldest, at+1, "client %d is late, and was not forgotten", id)
			}
		}
		for range 300 {
			step()
		}
	}
}

// A client that was gone before the new target was there goes with the old one, also if it is late
// meanwhile.
func TestGoneIsForgottenAfterOpened(t *testing.T) {
	f := Fence{}
	f.Late(1)
	f.Gone(2)
	require.True(t, f.Begin(0))
	f.Opened()
	f.Late(2)
	f.Gone(1)
	require.ElementsMatch(t, []uint64{1, 2}, f.Closed())
}
