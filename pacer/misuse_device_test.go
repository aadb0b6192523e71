//go:build linux

package pacer_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
	b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
	over, cancel := context.WithCancel(within(t))
	cancel()
	n, err := b.PostContext(over)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	r.idle()
}

// A pacer and a requester refuse to share a queue pair's sends, whichever comes first.
func TestPacerAndRequesterRefuseEachOther(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	_, err := verbs.NewRequester(q.QP(), verbs.RequesterConfig{})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.ErrorContains(t, err, "pacer")
	require.NoError(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 64)))

	cq := r.cq()
	qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	r.connect(qp, r.peer())
	requester, err := verbs.NewRequester(qp, verbs.RequesterConfig{})
	require.NoError(t, err)
	_, err = r.p.Wrap(qp, cq, pacer.FlowConfig{})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.NoError(t, requester.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 64)))
	require.NoError(t, requester.Close())
	q, err = r.p.Wrap(qp, cq, pacer.FlowConfig{})
	require.NoError(t, err)
	require.NoError(t, q.Close())
}

// A completion queue with completions that were not polled, or with sends of an extended queue pair
// under way, is not taken over: they would be lost. What was found is still there.
func TestWrapRefusesUnfinishedRequests(t *testing.T) {
	for _, extended := range []bool{false, true} {
		r := newRig(t, pacer.Config{})
		cq := r.cq()
		qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid, Extended: extended})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		r.connect(qp, r.peer())
		b, err := qp.NewBatch(1)
		require.NoError(t, err)
		refused := func() bool {
			t.Helper()
			q, err := r.p.Wrap(qp, cq, pacer.FlowConfig{})
			if err == nil {
				require.NoError(t, q.Close())
				return false
			}
			require.ErrorIs(t, err, verbs.ErrInUse)
			return true
		}
		b.Add(verbs.WR{ID: 7, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 8)}})
		_, err = b.Post()
		require.NoError(t, err)
		if extended {
			require.True(t, refused(), "it may be under way")
		}
		time.Sleep(50 * time.Millisecond)
		require.True(t, refused())
		require.True(t, refused(), "and again")
		var wcs [4]verbs.WC
		n, err := cq.Wait(within(t), wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, 7, wcs[0].ID())
		require.False(t, refused())
	}
}

// A Wrap looks at the completion queue, as a keep-alive does, and the first requester of another
// queue pair takes it over: neither waits for what the other has.
func TestWrapBesideARequester(t *testing.T) {
	r := newRig(t, pacer.Config{})
	cq := r.cq()
	open := func() *verbs.QP {
		qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		r.connect(qp, r.peer())
		return qp
	}
	other, stop, over := open(), make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				close(over)
				return
			default:
			}
			q, err := verbs.NewRequester(other, verbs.RequesterConfig{})
			if err == nil {
				err = q.Close()
			}
			if err != nil && !errors.Is(err, verbs.ErrInUse) {
				over <- err
				return
			}
		}
	}()
	for range 40 {
		qp, wrapped := open(), make(chan error)
		go func() {
			q, err := r.p.Wrap(qp, cq, pacer.FlowConfig{})
			if err == nil {
				err = q.Close()
			}
			wrapped <- err
		}()
		select {
		case err := <-wrapped:
			if err != nil {
				require.ErrorIs(t, err, verbs.ErrInUse)
			}
		case <-within(t).Done():
			t.Fatal("they wait for each other")
		}
	}
	close(stop)
	require.NoError(t, <-over)
}
