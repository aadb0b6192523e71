//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	gid verbs.GIDEntry
}

func open(t *testing.T, name string) end {
	t.Helper()
	d, err := verbs.Open(name, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
	require.NoError(t, err)
	return end{d, pd, gid}
}

func (e end) qp(t *testing.T) (*verbs.QP, *verbs.CQ) {
	t.Helper()
	cq, err := e.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := e.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: e.gid})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	return qp, cq
}

// clients makes a region on rxe1 and n initiators on rxe0.
func clients(t *testing.T, n int, l lockoffload.Layout, r lockoffload.Retry) []*lockoffload.Client {
	t.Helper()
	if !lab.In() {
		t.Skip("needs the lab's two devices")
	}
	a, b := open(t, "rxe0"), open(t, "rxe1")
	mr, err := b.pd.AllocMR(l.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	reg, err := lockoffload.NewRegion(mr, l)
	require.NoError(t, err)
	var out []*lockoffload.Client
	for i := range n {
		qa, cq := a.qp(t)
		qb, _ := b.qp(t)
		ea, err := qa.Endpoint()
		require.NoError(t, err)
		eb, err := qb.Endpoint()
		require.NoError(t, err)
		require.NoError(t, qa.Connect(eb, verbs.ConnectConfig{}))
		require.NoError(t, qb.Connect(ea, verbs.ConnectConfig{}))
		c, err := lockoffload.NewClient(lockoffload.Config{PD: a.pd, QP: qa, CQ: cq, Remote: reg.Remote(), Layout: l, Owner: uint16(i + 1), Retry: r})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		out = append(out, c)
	}
	return out
}

func TestLockExcludes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cs := clients(t, 2, lockoffload.Layout{Slots: 2, Size: 64}, lockoffload.Retry{Tries: 3})
	h, _, err := cs[0].TryLock(ctx, 1)
	require.NoError(t, err)
	_, _, err = cs[1].TryLock(ctx, 1)
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	_, res, err := cs[1].Read(ctx, 1, make([]byte, 64))
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.Equal(t, 3, res.Tries)
	_, _, err = cs[1].Read(ctx, 0, make([]byte, 64)) // another slot is free
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx), "the failed chains left the holder's lock alone")
	require.NoError(t, h.Unlock(ctx))
	h, _, err = cs[1].Lock(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
}

func TestCounterLosesNoUpdate(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	const each = 200
	cs := clients(t, 4, lockoffload.Layout{Slots: 1, Size: 8}, lockoffload.Retry{})
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			for range each {
				_, err := c.Update(ctx, 0, func(old []byte) ([]byte, error) {
					var n uint64
					if len(old) == 8 {
						n = binary.LittleEndian.Uint64(old)
					}
					return binary.LittleEndian.AppendUint64(nil, n+1), nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
			if err := c.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	data, res, err := cs[0].Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, uint64(4*each), binary.LittleEndian.Uint64(data))
	require.Equal(t, uint64(4*each), res.Version)
}

func TestLocksInOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cs := clients(t, 2, lockoffload.Layout{Slots: 3, Size: 8}, lockoffload.Retry{})
	var wg sync.WaitGroup
	for i, c := range cs {
		order := [][]int{{0, 2, 1}, {2, 1, 0, 2}}[i]
		wg.Go(func() {
			for range 20 {
				held, err := c.LockAll(ctx, order...)
				if err != nil || len(held) != 3 {
					t.Error(len(held), err)
					return
				}
				if err := lockoffload.UnlockAll(ctx, held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A lock command whose reply nobody waited for must not leave the slot locked.
func TestLockGivenUpIsReleased(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cs := clients(t, 2, lockoffload.Layout{Slots: 1, Size: 8}, lockoffload.Retry{})
	for i := range 20 {
		short, stop := context.WithTimeout(ctx, time.Duration(i)*20*time.Microsecond)
		h, _, err := cs[0].Lock(short, 0)
		stop()
		if err == nil {
			require.NoError(t, h.Unlock(ctx))
		}
		require.NoError(t, cs[0].Flush(ctx))
		h, _, err = cs[1].TryLock(ctx, 0)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
	}
}
