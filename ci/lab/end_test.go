//go:build linux

package lab_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// end is one end of a connection, until the test ends.
type end struct {
	cq *verbs.CQ
	mr *verbs.MR
	qp *verbs.QP
}

func newEnd(t *testing.T, at lab.Endpoint, size int) *end {
	t.Helper()
	until := func(c interface{ Close() error }) { t.Cleanup(func() { require.NoError(t, c.Close()) }) }
	dev, err := verbs.Open(at.Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	until(dev)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	until(pd)
	gid, err := dev.FindGID(verbs.GIDQuery{Addr: at.Addr})
	require.NoError(t, err)
	var e end
	e.cq, err = dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	until(e.cq)
	e.mr, err = pd.AllocMR(size, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	require.NoError(t, err)
	until(e.mr)
	e.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, GID: gid})
	require.NoError(t, err)
	until(e.qp)
	return &e
}

func connect(t *testing.T, a, b *end, cfg verbs.ConnectConfig) {
	t.Helper()
	for _, q := range [][2]*end{{a, b}, {b, a}} {
		peer, err := q[1].qp.Endpoint()
		require.NoError(t, err)
		require.NoError(t, q[0].qp.Connect(peer, cfg))
	}
}

// carry posts the one request that add makes and returns how long it took.
func carry(t *testing.T, e *end, add func(*verbs.Batch)) time.Duration {
	t.Helper()
	batch, err := e.qp.NewBatch(1)
	require.NoError(t, err)
	add(batch)
	start := time.Now()
	_, err = batch.Post()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wcs [1]verbs.WC
	_, err = e.cq.Wait(ctx, wcs[:])
	require.NoError(t, err)
	require.NoError(t, wcs[0].Err())
	return time.Since(start)
}
