package lockoffload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that waited, for a share or for its turn at a swap, while the client was closed
// takes no memory any more: it would not be freed before Close returns.
func TestNoJobOfAClosedClient(t *testing.T) {
	c := &Client{}
	require.NoError(t, c.free())
	_, err := c.start(nil, nil, 0)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, c.busy)
}
