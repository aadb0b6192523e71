//go:build simhca && linux && cgo

package cache

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// A session that closes frees the buffer of a READ whose goroutine has not released it yet.
func TestSimulatedBufferIsReleasedLate(t *testing.T) {
	if !strings.HasPrefix(os.Getenv("SIMHCA"), "mlx5") {
		t.Skip(`needs SIMHCA="mlx5,mlx5"`)
	}
	dev, err := verbs.Open("mlx5_0", verbs.DeviceConfig{})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 1, Backend: dc.Hardware})
	require.NoError(t, err)
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
	require.NoError(t, i.Close())
	require.NoError(t, pd.Close(), "no memory is left in it")
	require.NoError(t, dev.Close())
}
