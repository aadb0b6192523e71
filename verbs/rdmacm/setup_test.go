package rdmacm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestRefusesIWARP(t *testing.T) {
	require.ErrorIs(t, transport(1), verbs.ErrUnsupported)
	for _, other := range []int32{-1, 0} { // unknown to libibverbs, InfiniBand and RoCE
		require.NoError(t, transport(other))
	}
}
