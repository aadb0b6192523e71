//go:build linux && cgo

package verbs

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// TestDrainSRD: EFA takes no requests in the error state, so there is no mark to
// wait for: sends are counted.
func TestDrainSRD(t *testing.T) {
	q, b, _, toPeer := connected(t, QPConfig{Type: SRD}, 2)
	toPeer()
	b.Send(1, Signaled, wordSGE)
	b.Send(2, Signaled, wordSGE)
	_, err := b.Post()
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, q.Drain(short, nil), ErrDrain, "both are under way")

	standin.Complete(standinQP, 2, uint32(WCSuccess))
	standin.Complete(standinQP, 1, uint32(WCFlushed))
	var ids []uint64
	require.NoError(t, q.Drain(t.Context(), func(w *WC) { ids = append(ids, w.ID()) }))
	require.Equal(t, []uint64{2, 1}, ids)
	require.NotContains(t, standin.Recorded(), "WRONG STATE")
}

// TestDrainDCT: mlx5 has no way from RTR to the error state for a target.
func TestDrainDCT(t *testing.T) {
	_, p, c, s := driverRig(t)
	q, err := p.CreateQP(QPConfig{Type: DCT, SendCQ: c, SRQ: s, GID: standinGID})
	require.NoError(t, err)
	require.NoError(t, q.Activate())
	standin.Recorded()
	err = q.Drain(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "Close ends what is under way")
	require.Equal(t, StateRTR, q.State())
	recorded(t, "")
	require.NoError(t, q.Close())
}

// TestDrainMarks: the mark is a request that the type has, whatever its provider
// looks at before the device flushes it.
func TestDrainMarks(t *testing.T) {
	for name, cfg := range map[string]QPConfig{
		"RC": {Extended: true}, "UC": {Type: UC, Extended: true}, "UD": {Type: UD, Extended: true},
		"raw packet": {Type: RawPacket, Extended: true}, "DCI": {Type: DCI}, "DCI, streams": {Type: DCI, Streams: 4},
	} {
		t.Run(name, func(t *testing.T) {
			q, _, _, _ := connected(t, cfg, 1)
			require.NoError(t, q.Drain(t.Context(), nil))
			require.Equal(t, StateError, q.State())
		})
	}
}

// TestDrainRefusedMark: erdma takes no requests in the error state either, and
// reports no room.
func TestDrainRefusedMark(t *testing.T) {
	q, _, _, _ := connected(t, QPConfig{Extended: true}, 1)
	standin.Refuse("complete", syscall.EIO)
	err := q.Drain(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "takes no requests in the error state")
}
