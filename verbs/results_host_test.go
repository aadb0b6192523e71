//go:build linux && cgo

package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// A requester without atomics registers nothing; one that has made an atomic gives
// the memory back, and registers none after that.
func TestResultsAreRegisteredForAtomicsAlone(t *testing.T) {
	p, l := hostLink(t)
	r, err := l.Requester()
	require.NoError(t, err)
	ended := func(op func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- op() }()
		var id []uint64
		for end := time.Now().Add(10 * time.Second); len(id) == 0; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end))
			id = r.underWay()
		}
		standin.Complete(l.QP().Num(), id[0], uint32(WCSuccess))
		<-done
	}
	ended(func() error { return r.Write(t.Context(), wordAt, wordSGE) })
	require.Zero(t, p.life.Children("mr"))
	ended(func() error { _, err := r.FetchAdd(t.Context(), wordAt, 1); return err })
	require.Equal(t, 1, p.life.Children("mr"))
	require.NoError(t, r.Close())
	require.Zero(t, p.life.Children("mr"))
	_, err = r.FetchAdd(t.Context(), wordAt, 1)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, p.life.Children("mr"))
	require.NoError(t, l.Close())
}
