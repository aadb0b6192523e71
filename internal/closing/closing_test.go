package closing

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// All are closed, the last one first, also if one fails.
func TestStack(t *testing.T) {
	var s Stack
	require.NoError(t, s.Close())
	failed := errors.New("failed")
	var closed []int
	for i := range 3 {
		s.Add(Func(func() error {
			closed = append(closed, i)
			if i == 1 {
				return failed
			}
			return nil
		}))
	}
	require.ErrorIs(t, s.Close(), failed)
	require.Equal(t, []int{2, 1, 0}, closed)
}
