package place

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	in := Set{0: true, 7: true, 8: true, 500: true, Shards - 1: true}
	out, ok := ReadSet(in.Append(nil))
	require.True(t, ok)
	require.Equal(t, in, out)
	for _, n := range []int{0, Shards/8 - 1, Shards/8 + 1} {
		_, ok = ReadSet(make([]byte, n))
		require.False(t, ok, n)
	}
}
