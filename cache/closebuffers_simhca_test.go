//go:build simhca && linux && cgo

package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
)

// A session that closes frees the buffer of a READ whose goroutine has not released it yet.
func TestSimulatedBufferIsReleasedLate(t *testing.T) {
	i := simulated.Initiator(t, 1)
	s := &session{through: &through{i: i}, buffers: buffers{every: map[*slab]bool{}, turn: semaphore.NewWeighted(longBytes)}}
	s.mu.Lock()
	short, err := s.buffer(t.Context(), 1)
	require.NoError(t, err)
	long, err := s.buffer(t.Context(), 1<<20)
	require.NoError(t, err)
	s.mu.Unlock()
	s.ended.Store(true)
	s.closeBuffers()
	s.mu.Lock()
	s.release(short)
	s.release(long)
	s.trim.Stop()
	s.mu.Unlock()
}
