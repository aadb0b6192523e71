package srd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// The handle that was found last is no longer found when it was forgotten, and only for its
// own way; one that is found counts as used.
func TestHandleThatWasForgotten(t *testing.T) {
	to, other := way{label: 1}, way{label: 2}
	h := handles{of: make(map[way]*handle), asked: make(chan way, 2)}
	require.Nil(t, h.get(to), "it is being made")
	require.Equal(t, to, <-h.asked)
	h.of[to].ah = new(verbs.AH)
	found := h.get(to)
	require.NotNil(t, found)
	require.Nil(t, h.get(other))
	require.Equal(t, other, <-h.asked)
	delete(h.of, other)

	found.dirty = false
	require.Same(t, found, h.get(to))
	require.True(t, found.dirty)
	require.True(t, h.evict())
	require.Nil(t, h.get(to))
	require.Equal(t, to, <-h.asked)
	require.Len(t, h.retry, 1)
}
