package shaper

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Flows of a class at its cap do not keep the units from others.
func TestCappedClassLeavesUnits(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Units: 1, Threshold: 100 * kib, Classes: []Class{{Cap: kib}, {}}}, FlowConfig{}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	for f := range 3 {
		b.get(f, 8*kib)
	}
	_, ok := b.next()
	require.True(t, ok)
	r := b.get(3, 8*kib, inClass(1))
	g, ok := b.next()
	require.True(t, ok)
	require.Equal(t, r, g.Request)
}

// A class has as much outstanding as its cap, and no more.
func TestCap(t *testing.T) {
	for limit, want := range map[int64]int{2 * (kib + 1): 2, 2*(kib+1) - 1: 1, 1: 1, 0: 4} {
		b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib, Classes: []Class{{Cap: limit}}}, FlowConfig{})
		b.get(0, 4*kib)
		require.Len(t, b.all(), want, "%d", limit)
	}
}

// However many of them are in line, whatever the priority of their class: the one behind all of them goes.
func TestCappedClassInLine(t *testing.T) {
	for _, units := range []int{1, 2, 3} {
		for capped := 1; capped < 9; capped++ {
			for _, priority := range []int{0, 1} {
				b := newBench(t, Config{MTU: kib, Slice: kib, Units: units, Threshold: 100 * kib, Small: 1, Classes: []Class{{Cap: kib, Priority: priority}, {}, {}}}, make([]FlowConfig, capped+2)...)
				for f := range capped {
					b.get(f, 8*kib)
				}
				require.Len(t, b.all(), 1)
				r := b.get(capped, kib, inClass(1))
				got := b.all()
				require.Len(t, got, 1, "%d units, %d flows", units, capped)
				require.Equal(t, r, got[0].Request)
				require.Empty(t, b.all())
				b.get(capped+1, kib, inClass(2))
				require.Len(t, b.all(), 1)
			}
		}
	}
}

// The flows of a class at its cap take turns, whatever comes of other classes meanwhile: what goes at once, what has a
// limit of its own, and what waits for something else.
func TestCappedClassTakesTurns(t *testing.T) {
	others := map[string]func(b *bench, f int){
		"none":  func(*bench, int) {},
		"goes":  func(b *bench, f int) { b.get(f, 64, inClass(1)) },
		"large": func(b *bench, f int) { b.get(f, kib, inClass(1)) },
		"own": func(b *bench, f int) {
			b.s.flows[f].MaxReads = 1
			b.get(f, 64, inClass(1))
		},
		"threshold": func(b *bench, f int) { b.get(f, 1<<20, inClass(1), func(c *Command) { c.Whole = true }) },
	}
	for name, other := range others {
		for units := 1; units <= 4; units++ {
			for capped := 2; capped <= 6; capped++ {
				for outstanding := range 2 {
					b := newBench(t, Config{MTU: kib, Slice: kib, Units: units, Threshold: 100 * kib, Small: 100, Classes: []Class{{Cap: int64(outstanding+1) * (kib + 1)}, {}}}, make([]FlowConfig, capped+2)...)
					for f := range capped {
						b.get(f, 1<<30)
					}
					var out []Grant
					n := make([]int, capped)
					for i := range 50 * capped {
						if i%3 > 0 {
							other(b, capped+i%2)
						}
						for g, ok := b.next(); ok; g, ok = b.next() {
							if b.place(g.Flow) < capped {
								out = append(out, g)
							} else if name != "own" {
								b.done(g)
							}
						}
						require.NotEmpty(t, out)
						b.done(out[0])
						n[b.place(out[0].Flow)]++
						out = out[1:]
					}
					require.LessOrEqual(t, slices.Max(n)-slices.Min(n), 2, "%s: %d units, %d flows, %d outstanding: %v", name, units, capped, outstanding+1, n)
				}
			}
		}
	}
}

// Of other classes too each has its turns in place of a class at its cap, in both lines.
func TestTurnsBesideCappedClass(t *testing.T) {
	for units := 1; units <= 3; units++ {
		for _, priority := range []int{0, 1} {
			b := newBench(t, Config{MTU: kib, Slice: kib, Units: units, Threshold: 100 * kib, Small: 100, Classes: []Class{{Cap: kib, Priority: priority}, {}}}, make([]FlowConfig, 7)...)
			for f := range 3 {
				b.get(f, 1<<20)
			}
			require.Len(t, b.all(), 1)
			for f := range 4 {
				for range 1000 {
					b.get(3+f, 64<<(f%2*4), inClass(1)) // of 64 bytes, or a kibibyte
				}
			}
			n := counts(b.order(400), 7)
			require.Equal(t, []int{0, 0, 0}, n[:3])
			require.InDelta(t, n[3], n[5], 2, "%d units: %v", units, n)
			require.InDelta(t, n[4], n[6], 2, "%d units: %v", units, n)
			require.Greater(t, slices.Min(n[3:]), 40, "%d units: %v", units, n)
		}
	}
}
