package dc

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// busy is a back end of a target that closes at the third attempt. What is not defined here must not be called.
type busy struct {
	targetBackend
	tries int
}

func (b *busy) stop() {}

func (b *busy) close() error {
	if b.tries++; b.tries < 3 {
		return errors.New("busy")
	}
	return nil
}

// A target that could not be closed can be closed again.
func TestTargetClosesAgain(t *testing.T) {
	b := &busy{}
	target := &Target{be: b}
	for range 2 {
		require.ErrorContains(t, target.Close(), "busy")
	}
	require.NoError(t, target.Close())
	require.Equal(t, 3, b.tries)
}
