//go:build linux

package verbs

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// libibverbs gives the address of a destroyed object to the next one, which may
// be another goroutine's. That one must hear of its events all the same.
func TestReusedHandleKeepsItsEvents(t *testing.T) {
	list, err := Devices()
	if err != nil || len(list) == 0 {
		t.Skip("no RDMA device: run in the lab (make lab)")
	}
	d, err := Open(list[0].Name, DeviceConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	pd, err := d.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()

	turns := 2000
	if testing.Short() {
		turns = 60
	}
	var wg sync.WaitGroup
	lost := make([]int, 4)
	for i := range lost {
		wg.Go(func() {
			for range turns {
				cq, err := d.CreateCQ(CQConfig{Depth: 1, PollOnly: true})
				if err != nil {
					t.Error(err)
					return
				}
				srq, err := pd.CreateSRQ(SRQConfig{MaxWR: 1})
				if err != nil {
					t.Error(err)
					return
				}
				qp, err := pd.CreateQP(QPConfig{SendCQ: cq, SRQ: srq, MaxSendWR: 1})
				if err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
				d.async.mu.Lock()
				if d.async.cqs[uint64(cq.cq)] != cq || d.async.qps[uint64(qp.qp)] != qp || d.async.srqs[uint64(srq.srq)] != srq {
					lost[i]++
				}
				d.async.mu.Unlock()
				require.NoError(t, qp.Close())
				require.NoError(t, srq.Close())
				require.NoError(t, cq.Close())
			}
		})
	}
	wg.Wait()
	require.Equal(t, make([]int, len(lost)), lost, "live objects without an entry, by goroutine")
	d.async.mu.Lock()
	defer d.async.mu.Unlock()
	require.Empty(t, d.async.cqs)
	require.Empty(t, d.async.qps)
	require.Empty(t, d.async.srqs)
}
