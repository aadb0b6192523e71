//go:build linux

package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/procs"
)

// The instrument is tested like code: what is known to be there must show at
// its size. On the wall clock of a shared machine nothing of this size shows.
func instrument(t *testing.T) *rig.RC {
	t.Helper()
	lab.RequireTopology(t, "wire")
	if lab.Clock() != "instructions" {
		t.Skip("needs the instruction clock: rxelab -clock instructions")
	}
	procs.SpareProcs()
	r, err := rig.NewRC()
	require.NoError(t, err)
	return r
}

// A known number of extra instructions in each READ of the C loop.
func TestExtraInstructionsShow(t *testing.T) {
	r := instrument(t)
	// Runs between two ticks: a long one has interrupts in it. They are made again beside each READ:
	// what disturbs all of them at one time has ended at another.
	perTurn := math.Inf(1) // us
	calibrate := func() {
		const turns = 20_000
		perTurn = min(perTurn, least(50, func() float64 { return float64(standin.Spin(turns).Nanoseconds()) / turns / 1e3 }))
	}
	calibrate()
	reads := func(turns int) float64 {
		return least(3, func() float64 {
			us, err := r.CReads(200, turns)
			require.NoError(t, err)
			return us
		})
	}
	base := reads(0)
	got := make(map[int]float64)
	loops := []int{1000, 2000, 4000, 8000}
	for _, turns := range loops {
		got[turns] = reads(turns)
		calibrate()
	}
	for _, turns := range loops {
		want := float64(turns) * perTurn
		t.Logf("%d turns: %.2f us expected, %.2f us seen on top of %.2f us", turns, want, got[turns]-base, base)
		// 2 % of the effect, and what a READ differs from itself: it has two
		// modes, some 2.2 us apart, of which now one and now the other has the
		// median (173.7 to 176.6 us in eight runs).
		require.InDelta(t, want, got[turns]-base, 0.02*want+0.017*base, "%d turns", turns)
	}
}

// least is the least of n values: on this clock, whatever disturbs adds.
func least(n int, f func() float64) float64 {
	v := f()
	for range n - 1 {
		v = min(v, f())
	}
	return v
}

// A delay of netem, on both ways.
func TestDelayShows(t *testing.T) {
	r := instrument(t)
	without, err := r.CReads(100, 0)
	require.NoError(t, err)
	const delay = time.Millisecond
	lab.ImpairWire(t, lab.Impairment{Delay: delay})
	with, err := r.CReads(100, 0)
	require.NoError(t, err)
	t.Logf("C loop: %.1f us without, %.1f us with %v each way", without, with, delay)
	require.InEpsilon(t, 2*float64(delay.Microseconds()), with-without, 0.05)
	goWith, err := r.GoReads(100)
	require.NoError(t, err)
	t.Logf("Go: %.1f us with the delay", goWith)
	require.InEpsilon(t, with, goWith, 0.05)
}

// The same program again gives the same figure.
func TestRepeats(t *testing.T) {
	r := instrument(t)
	var c, g []float64
	for range 7 {
		x, err := r.CReads(200, 0)
		require.NoError(t, err)
		y, err := r.GoReads(200)
		require.NoError(t, err)
		c, g = append(c, x), append(g, y)
	}
	ci, gi := measure.MedianInterval(c), measure.MedianInterval(g)
	t.Logf("C loop %.2f us [%.2f, %.2f], Go %.2f us [%.2f, %.2f], n = 7 each", measure.Median(c), ci.Low, ci.High, measure.Median(g), gi.Low, gi.High)
	require.Less(t, ci.High/ci.Low, 1.02)
	require.Less(t, gi.High/gi.Low, 1.05)
}
