//go:build linux && cgo

package standin_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/cgo/standin"
)

// TestExtendedPollErrors: whatever a provider returns, a poll of n returns at most
// n completions and an error otherwise, and ends each poll that has started.
// mlx5_start_poll and mlx5_next_poll (providers/mlx5/cq.c) return CQ_POLL_ERR, -2;
// those of mlx4 and hns are like them.
func TestExtendedPollErrors(t *testing.T) {
	const empty = int(syscall.ENOENT)
	for _, how := range []cgo.PollPath{cgo.PollExtended, cgo.PollRXE} {
		for _, c := range []struct {
			completions, err int
			want             error
		}{
			{0, empty, nil}, {3, empty, nil}, {9, empty, nil},
			{0, -2, syscall.EIO}, {3, -2, syscall.EIO}, {3, -1, syscall.EIO}, {0, -1, syscall.EIO},
			{0, -int(syscall.EINVAL), syscall.EINVAL}, {3, int(syscall.EINVAL), syscall.EINVAL},
		} {
			for _, room := range []int{1, 2, 3, 4, 8} {
				t.Run(fmt.Sprintf("path %d, %d completions, then %d, by %d", how, c.completions, c.err, room), func(t *testing.T) {
					q, err := standin.NewCQ(c.completions, c.err)
					require.NoError(t, err)
					defer q.Close()
					path, err := cgo.NewPollPath(how)
					require.NoError(t, err)
					defer cgo.FreePollPath(path)
					wcs := make([]cgo.WC, room)
					got := 0
					for got < c.completions {
						n, err := cgo.PollCQ(q.CQ(), path, wcs, 0)
						require.NoError(t, err, "what is in the queue comes first")
						require.Positive(t, n)
						for i := range wcs[:n] {
							require.EqualValues(t, c.completions-got-i, wcs[i].ID)
						}
						got += n
						require.Equal(t, c.completions-got, q.Left())
					}
					n, err := cgo.PollCQ(q.CQ(), path, wcs, 3)
					require.Zero(t, n)
					if c.want == nil {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, c.want)
					}
					require.Zero(t, q.Misused())
				})
			}
		}
	}
}
