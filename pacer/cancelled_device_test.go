//go:build linux

package pacer_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/canceltest"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// Calls under a context that has ended already do nothing, though they need not wait.
func TestCancelledBefore(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	canceltest.Methods(t, r.p, []any{64})
	canceltest.Methods(t, q.CQ, nil)
	canceltest.Methods(t, q, []any{r.b.mr.Region().At(0)})
	b, err := q.NewBatch(1)
	require.NoError(t, err)
	b.Read(1, verbs.Signaled, r.b.mr.Region().At(0), r.a.mr.SGE(0, 8))
	over, cancel := context.WithCancel(within(t))
	cancel()
	n, err := b.PostContext(over)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	r.idle()
}
