//go:build linux

package dc_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestLongWriteImmWithoutReceive: the target says that it has no receive when most of the
// memory has been written. So the request is not called undone, and it is not carried out
// once more behind the back of the target's program. A short one waits for its receive.
func TestLongWriteImmWithoutReceive(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	const n = 16 << 10
	write := func(n int) dc.Request {
		return dc.Request{ID: 1, Op: dc.WriteImm, Imm: 7, Local: a.mr.SGE(0, n), Remote: b.mr.Region().At(0)}
	}
	copy(a.mr.Bytes(), bytes.Repeat([]byte{0xab}, n))
	err := i.Do(ctx, p, write(n))
	require.ErrorIs(t, err, dc.ErrSession)
	require.ErrorIs(t, err, dc.ErrNoReceive)
	require.ErrorIs(t, err, verbs.WCRNRRetryExceeded)
	require.Zero(t, i.Stats().NotReady)
	require.NotZero(t, bytes.Count(b.mr.Bytes()[:n], []byte{0xab}))

	clear(b.mr.Bytes()[:n])
	recv, err := target.NewRecvBatch(2)
	require.NoError(t, err)
	receive := func(count int) {
		for range count {
			recv.Recv(1, b.mr.SGE(n, 64))
		}
		_, err := recv.Post()
		require.NoError(t, err)
	}
	receive(1)
	do(t, i, p, dc.Request{ID: 2, Op: dc.SendImm, Local: a.mr.SGE(0, 8), Imm: 8})
	require.Equal(t, make([]byte, n), b.mr.Bytes()[:n], "it is over")

	_, err = i.Post(p, write(4))
	require.NoError(t, err)
	for i.Stats().NotReady == 0 {
		require.NoError(t, ctx.Err())
		k, err := i.Poll(make([]dc.Completion, 1))
		require.NoError(t, err)
		require.Zero(t, k)
	}
	if len(simulated) == 0 { // simulated devices look for the receive too late
		require.Zero(t, b.mr.Bytes()[0])
	}
	receive(2)
	require.NoError(t, wait(t, i, 1)[0].Err)
	do(t, i, p, write(n))
	require.EqualValues(t, 0xab, b.mr.Bytes()[n-1])
}
