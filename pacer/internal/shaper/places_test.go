package shaper

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The places of requests and of request packets are used again, also of a piece that was to be issued again and was
// cancelled: however long a program runs, it has no more of them than it had at a time.
func TestPlacesAreUsedAgain(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
	for range 100 {
		r := b.get(0, 2*kib)
		require.EqualValues(t, 0, r)
		out := b.all()
		require.Len(t, out, 2)
		for _, g := range out {
			require.Less(t, g.Sub.place(), int64(2))
		}
		require.True(t, b.s.Failed(out[0].Sub, true))
		b.s.Cancel(r)
		require.Empty(t, b.all())
		b.done(out[1])
		got, _, complete, ok := b.s.Finished()
		require.True(t, ok)
		require.Equal(t, r, got)
		require.False(t, complete)
		b.s.Free(r)
	}
}

// A request that is cancelled after it has finished is complete.
func TestCancelledTooLate(t *testing.T) {
	for _, cancel := range []func(*bench, Request){
		func(b *bench, r Request) { b.s.Cancel(r) },
		func(b *bench, _ Request) { b.s.Abandon(b.flows[0]) },
	} {
		b := newBench(t, Config{}, FlowConfig{})
		r := b.get(0, kib)
		b.order(1)
		cancel(b, r)
		got, _, complete, ok := b.s.Finished()
		require.True(t, ok)
		require.Equal(t, r, got)
		require.True(t, complete)
		require.False(t, b.s.Ended())
		b.s.Free(r)
		cancel(b, b.get(0, kib))
		_, _, complete, ok = b.s.Finished()
		require.True(t, ok)
		require.False(t, complete)
		require.True(t, b.s.RemoveFlow(b.flows[0]))
	}
}

// What is cancelled, or has failed, takes no pieces of others with it that go again.
func TestPiecesOfOthersGoAgain(t *testing.T) {
	for _, end := range []func(*bench, []Grant){
		func(b *bench, out []Grant) { b.s.Cancel(out[0].Request) },
		func(b *bench, out []Grant) { require.True(b.t, b.s.Failed(out[1].Sub, false)) },
	} {
		b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
		b.get(0, 2*kib)
		other := b.get(0, kib)
		out := b.all()
		require.Len(t, out, 3)
		require.True(t, b.s.Failed(out[0].Sub, true))
		require.True(t, b.s.Failed(out[2].Sub, true))
		end(b, out)
		again := b.all()
		require.Len(t, again, 1)
		require.Equal(t, other, again[0].Request)
	}
}
