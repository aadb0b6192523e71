package rdmacm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
)

// TestStepBeforeEnd: a step that ended before the peer went away has ended well.
func TestStepBeforeEnd(t *testing.T) {
	down := make(chan struct{})
	close(down)
	i := &cmID{steps: make(chan cgo.CMEvent, 1), closed: make(chan struct{}), down: down, cause: ErrDisconnected}
	for range 100 { // select chooses at random
		i.steps <- cgo.CMEvent{Type: uint32(eventEstablished)}
		_, err := i.await(t.Context(), "accept", eventEstablished)
		require.NoError(t, err)
	}
	_, err := i.await(t.Context(), "accept", eventEstablished)
	require.ErrorIs(t, err, ErrDisconnected)
}
