package shaper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Twenty flows for four units, and the last one comes when the others have all of them: it
// is the next to go if it has a deadline, and before a higher class if it is late, by its
// deadline or because its class promotes it.
func TestDeadlinesInLine(t *testing.T) {
	const now = 10 * time.Millisecond
	one := func(b *bench, by time.Duration) { b.get(19, 4*kib, deadline(by)) }
	promote := Config{Slice: 4 * kib, Units: 4, Classes: []Class{{Promote: time.Millisecond}, {Priority: 1}}}
	for name, c := range map[string]struct {
		others int // their class
		last   func(b *bench)
	}{
		"deadline": {0, func(b *bench) { one(b, now+1) }},
		"late":     {1, func(b *bench) { one(b, now) }},
		"promoted": {1, func(b *bench) {
			require.NoError(t, b.s.Reconfigure(promote, b.now))
			b.get(19, 4*kib)
			b.order(1)
			b.now += time.Millisecond
		}},
		"promoted by a change": {1, func(b *bench) {
			b.get(19, 4*kib)
			b.now += time.Millisecond
			b.order(1)
			require.NoError(t, b.s.Reconfigure(promote, b.now))
		}},
		"late behind what is cancelled": {1, func(b *bench) {
			first := b.get(19, 4*kib)
			one(b, now)
			b.order(1)
			b.s.Cancel(first)
		}},
	} {
		b := newBench(t, Config{Slice: 4 * kib, Units: 4, Classes: []Class{{}, {Priority: 1}}}, make([]FlowConfig, 20)...)
		for f := range 19 {
			b.get(f, 64*kib, inClass(c.others))
		}
		b.order(5)
		b.now = now
		c.last(b)
		require.Equal(t, 19, b.order(1)[0], name)
		require.NotContains(t, b.order(8), 19, name)
	}
}

// More are late than there are units: they go in turn, and the others when they are done.
func TestMoreAreLateThanUnits(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 2, Classes: []Class{{}, {Priority: 1}}}, make([]FlowConfig, 12)...)
	for f := range 6 {
		b.get(f, 64*kib, inClass(1))
	}
	b.order(1)
	for f := range 6 {
		b.get(6+f, 8*kib, deadline(1))
	}
	b.now = 1
	n := counts(b.order(12), 12)
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2}, n)
	require.Less(t, b.order(1)[0], 6)
}
