package lockoffload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One server and one agent have a region; its memory is not laid out under them.
func TestOwners(t *testing.T) {
	var mem [64]byte
	require.False(t, owned(mem[:]))
	free, err := claim(mem[:], serverRole)
	require.NoError(t, err)
	_, err = claim(mem[:8], serverRole)
	require.ErrorIs(t, err, ErrConfig)
	agent, err := claim(mem[:], agentRole)
	require.NoError(t, err)
	free()
	require.True(t, owned(mem[:]))
	agent()
	agent()
	require.False(t, owned(mem[:]))
	free, err = claim(mem[:], serverRole)
	require.NoError(t, err)
	agent() // of long ago
	_, err = claim(mem[:], serverRole)
	require.ErrorIs(t, err, ErrConfig)
	free()
	require.False(t, owned(mem[:]))
}
