package credit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type frame struct {
	said uint32
	data bool
}

// end is one side with what it is sent.
type end struct {
	Flow
	in      []frame // on its way, or not taken
	toSend  int
	got     int
	stalled bool // its program takes nothing
}

// Whatever the two sides hold and in whatever order things happen, no frame is sent
// without a receive that waits for it, and in the end everything has arrived.
func TestNoFrameWithoutAReceive(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		holds := [2]uint32{1 + r.Uint32N(9), 1 + r.Uint32N(9)}
		var ends [2]*end
		total := [2]int{r.IntN(200), r.IntN(200)}
		for i := range ends {
			ends[i] = &end{Flow: New(holds[i], holds[1-i]), toSend: total[i]}
			// Numbers wrap around while the test runs.
			ends[i].sent, ends[i].passed, ends[i].taken, ends[i].told = math.MaxUint32-50, math.MaxUint32-50, math.MaxUint32-50, math.MaxUint32-50
		}
		post := func(to *end, f frame) {
			to.in = append(to.in, f)
			data := 0
			for _, f := range to.in {
				if f.data {
					data++
				}
			}
			if data > int(to.holds) || len(to.in)-data > Spare {
				t.Fatalf("seed %d: a frame that nothing receives: %d with data for %d, %d without", seed, data, to.holds, len(to.in)-data)
			}
		}
		idle := 0
		for ends[0].got < total[1] || ends[1].got < total[0] {
			if idle++; idle > 10_000 {
				t.Fatalf("seed %d: nothing goes on: %+v %+v", seed, ends[0].Flow, ends[1].Flow)
			}
			i := r.IntN(2)
			a, b := ends[i], ends[1-i]
			if r.IntN(50) == 0 {
				a.stalled = !a.stalled
			}
			switch {
			case r.IntN(2) == 0 && a.toSend > 0:
				n := min(a.Room(), a.toSend, 4)
				a.Send(n)
				for range n {
					a.toSend, idle = a.toSend-1, 0
					post(b, frame{a.Say(), true})
				}
			case !a.stalled && len(a.in) > 0:
				f := a.in[0]
				a.in, idle = a.in[1:], 0
				a.Heard(f.said)
				if f.data {
					a.got++
					if a.Took() {
						post(b, frame{a.Say(), false})
					}
				}
			}
		}
	}
}

func TestRoom(t *testing.T) {
	f := New(8, 3)
	require.Equal(t, 3, f.Room())
	f.Send(2)
	require.Equal(t, 1, f.Room())
	f.Send(1)
	require.Zero(t, f.Room())
	require.True(t, f.Heard(1))
	require.Equal(t, 1, f.Room())
	require.False(t, f.Heard(1), "it said so before")
	require.False(t, f.Heard(math.MaxUint32), "a hostile peer: it takes nothing back")
	require.Equal(t, 1, f.Room())
	require.True(t, f.Heard(2))
	require.Equal(t, 2, f.Room())
}

// Credit is due when half of what a side holds was taken since it last said so, and not before:
// otherwise each frame would cause another one in return.
func TestDue(t *testing.T) {
	f := New(8, 8)
	for range 3 {
		require.False(t, f.Took())
	}
	require.True(t, f.Took())
	require.Equal(t, uint32(4), f.Say())
	require.False(t, f.Took())
	require.Equal(t, uint32(5), f.Say(), "a frame with data says it too")
	for range 3 {
		require.False(t, f.Took())
	}
	require.True(t, f.Took())
	one := New(1, 1)
	require.True(t, one.Took())
}

// Frames without data are at most two for as many frames as a side holds, whatever that is: there
// are receives for no more.
func TestCreditsAreFew(t *testing.T) {
	for holds := uint32(1); holds < 20; holds++ {
		f := New(holds, 1)
		credits := 0
		for range holds {
			if f.Took() {
				credits++
				f.Say()
			}
		}
		require.LessOrEqual(t, credits, 2, holds)
		require.Positive(t, credits, holds)
	}
}

// Frames may be posted in another order than their counts were taken in: a lower count takes
// nothing back.
func TestCountsOutOfOrder(t *testing.T) {
	f := New(4, 4)
	f.sent, f.passed = 1, math.MaxUint32-2
	require.Zero(t, f.Room())
	require.True(t, f.Heard(1))
	require.False(t, f.Heard(math.MaxUint32))
	require.False(t, f.Heard(1))
	require.Equal(t, 4, f.Room())
}
