package verbs

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
)

// waits makes n waits, with came as the result of yielding the CPU, and returns which of them yielded.
func waits(p *yieldPolicy, n int, came bool) (gave []bool) {
	for range n {
		s := p.spins(4 | cgo.Yield)
		gave = append(gave, s != 0)
		p.polled(s, came && s != 0)
	}
	return gave
}

func count(gave []bool) (n int) {
	for _, g := range gave {
		if g {
			n++
		}
	}
	return n
}

// What comes in time is always waited for so, and what does not is tried less and less often.
func TestYieldPolicy(t *testing.T) {
	var p yieldPolicy
	require.Equal(t, 100, count(waits(&p, 100, true)))
	require.Equal(t, []bool{true, true, false, false, true, false, false, false, false, true}, waits(&p, 10, false))
	waits(&p, 100, false)
	require.LessOrEqual(t, count(waits(&p, 330, false)), 10)
	require.GreaterOrEqual(t, count(waits(&p, 330, false)), 10, "it is never given up")

	back := waits(&p, 40, true)
	require.True(t, back[39])
	require.Equal(t, 100, count(waits(&p, 100, true)), "once is enough to have it back")
}

// One wait in vain between others changes nothing.
func TestYieldPolicyForgives(t *testing.T) {
	var p yieldPolicy
	for range 20 {
		require.Equal(t, []bool{true}, waits(&p, 1, false))
		require.Equal(t, []bool{true, true}, waits(&p, 2, true))
	}
}

// What is there at once tells nothing of what giving up the CPU would have done; and without that all waits
// poll as often.
func TestYieldPolicyOfOthers(t *testing.T) {
	var p yieldPolicy
	waits(&p, 2, false)
	require.Equal(t, uint8(2), p.rest)
	s := p.spins(4 | cgo.Yield)
	require.Zero(t, s)
	p.polled(s, true)
	require.Equal(t, uint8(1), p.rest)
	require.Equal(t, uint8(2), p.vain)
	for range 10 {
		require.Equal(t, uint32(64), p.spins(64))
		p.polled(64, false)
	}
	require.Equal(t, yieldPolicy{2, 1}, p)
}

// Numbers of spins beyond what C takes are its most: they do not wrap around, nor mean to yield.
func TestSpins(t *testing.T) {
	for n, want := range map[int]uint32{math.MinInt: 0, -1: 0, 0: 0, 64: 64, math.MaxInt32: math.MaxInt32, math.MaxInt: math.MaxInt32, math.MaxInt - math.MaxInt32: math.MaxInt32} {
		require.Equal(t, want, spinsOf(n), n)
	}
}
