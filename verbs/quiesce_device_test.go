//go:build linux

package verbs_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// TestQuiesce: while the peer writes without end, nothing of it comes after Quiesce.
func TestQuiesce(t *testing.T) {
	const size = 8192
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 64}, verbs.CQConfig{Depth: 128}, verbs.ConnectConfig{})
		w := a.Batch(t, 64)
		wcs := make([]verbs.WC, 64)
		over := make(chan struct{})
		go func() {
			defer close(over)
			for n := byte(1); ; n++ {
				for i := range 16 {
					// What is sent is what memory was when it was sent: nearly always another byte.
					a.MR.Bytes()[size*i] = n
					w.Write(uint64(i), verbs.Signaled, b.MR.Region().At(uint64(size*i)), a.MR.SGE(size*i, size))
				}
				posted, err := w.Post()
				if err != nil {
					return
				}
				for posted > 0 {
					got, err := a.CQ.Poll(wcs)
					for _, wc := range wcs[:got] {
						if wc.Err() != nil {
							return
						}
					}
					if err != nil {
						return
					}
					posted -= got
				}
			}
		}()
		mem := b.MR.Bytes()[:16*size]
		require.Eventually(t, func() bool { return mem[15*size] > 2 }, time.Minute, time.Millisecond)
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		require.NoError(t, b.QP.Quiesce())
		seen := bytes.Clone(mem)
		require.Equal(t, verbs.StateReset, b.QP.State())
		time.Sleep(20 * time.Millisecond)
		require.True(t, bytes.Equal(seen, mem), "memory changed after Quiesce")
		require.NoError(t, b.QP.Quiesce(), "again")
		require.NoError(t, a.QP.ToError())
		<-over
	}
}
