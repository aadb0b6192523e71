package srd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// The handle that was found last is no longer found when it was forgotten, and only for its
// own way; one that is found counts as used.
func TestHandleThatWasForgotten(t *testing.T) {
	to, other := way{label: 1}, way{label: 2}
	h := handles{ep: &Endpoint{start: time.Now()}, of: make(map[way]*handle), asked: make(chan way, mostMaking),
		making: 1, helped: time.Hour} // nothing is made here, however long the test takes
	get := func(to way) *handle {
		a, coming := h.get(to, false)
		require.Equal(t, a == nil, coming)
		return a
	}
	require.Nil(t, get(to), "it is being made")
	require.Equal(t, to, <-h.asked)
	h.of[to].ah = new(verbs.AH)
	found := get(to)
	require.NotNil(t, found)
	require.Nil(t, get(other))
	require.Equal(t, other, <-h.asked)
	delete(h.of, other)

	found.dirty = false
	require.Same(t, found, get(to))
	require.True(t, found.dirty)
	require.True(t, h.evict())
	require.Nil(t, get(to))
	require.Equal(t, to, <-h.asked)
	require.Len(t, h.dropped, 1)
}

// Strangers have few handles made at once, and none while more are made for others.
func TestHandlesForStrangers(t *testing.T) {
	h := handles{ep: &Endpoint{start: time.Now()}, of: make(map[way]*handle), asked: make(chan way, mostMaking+1)}
	asks := func(n int, stranger bool) (made int) {
		for range n {
			if _, coming := h.get(way{label: uint32(len(h.of) + 1)}, stranger); coming {
				made++
			}
		}
		return made
	}
	require.Equal(t, 1, asks(1, true))
	h.helped = time.Hour // nothing is made here, however long the test takes
	require.Equal(t, forSomeone-1, asks(10, true))
	_, coming := h.get(way{label: 1}, true)
	require.True(t, coming)
	require.Equal(t, mostMaking-forSomeone, asks(2*mostMaking, false))
	require.Len(t, h.asked, mostMaking)
	h.making = forSomeone
	require.Zero(t, asks(1, true))
	require.Equal(t, 1, asks(1, false))
}

// A handle that is renewed is used meanwhile, and closed when no send uses it any more. When
// the host has changed, none of the old ones is used.
func TestHandlesThatAreReplaced(t *testing.T) {
	to := way{label: 1}
	h := handles{ep: &Endpoint{start: time.Now()}, of: make(map[way]*handle), asked: make(chan way, mostMaking)}
	old := &handle{ah: new(verbs.AH), uses: 1}
	h.of[to] = old
	get := func() *handle {
		a, _ := h.get(to, false)
		return a
	}
	require.Same(t, old, get())
	h.renew(to)
	require.Same(t, old, get())
	require.Same(t, old, get())
	require.Len(t, h.asked, 1)
	require.Equal(t, 1, h.making)

	h.dropAll()
	require.Nil(t, get())
	require.Empty(t, h.unused())
	old.uses = 0
	require.Equal(t, []*handle{old}, h.unused())
	require.Empty(t, h.dropped)
}
