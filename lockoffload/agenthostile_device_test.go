//go:build linux

package lockoffload_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// Clients that SEND rubbish, requests in another's name, or more than a message
// may have: they get no reply, others notice nothing, no receive is lost.
func TestAgentHostileClients(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, func(cfg *lockoffload.AgentConfig) { cfg.Queue = 1 })
	good := r.caller(nil)
	mr, err := r.a.pd.AllocMR(8192, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "stolen")}}
	forged := ch.Request(mr.Bytes()[:4096:4096], r.ids.Load(), 1000)

	qp, cq, err := r.link(666)
	require.NoError(t, err)
	b, err := qp.NewBatch(1)
	require.NoError(t, err)
	send := func(at, n int) error {
		b.Send(1, verbs.Signaled, mr.SGE(at, n))
		_, err := b.Post()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		_, err = cq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		return wcs[0].Err()
	}
	const more = 40 // than there are receives
	for i := range more {
		require.NoError(t, send(4096, i*3), "rubbish")
		require.NoError(t, send(0, forged))
	}
	require.Eventually(t, func() bool { return r.agent.Stats().Malformed == 2*more }, stuck, time.Millisecond)
	for range more {
		require.Error(t, send(0, 4096), "longer than a receive")
		qp, cq, err = r.link(666)
		require.NoError(t, err)
		b, err = qp.NewBatch(1)
		require.NoError(t, err)
	}
	for range more {
		_, err := good.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "good")}})
		require.NoError(t, err)
	}
	require.EqualValues(t, more, r.version(good, 0))
}

// Callers that keep a slot's agent busy all the time leave the lock to others
// now and then.
func TestAgentLeavesRoom(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	side, stop := r.side(), make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		c := r.caller(nil)
		for range 6 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 8)}}
					if _, err := c.Do(ctx, &ch); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	start, tries := time.Now(), 0
	const updates = 50
	for range updates {
		res, err := updateAsync(ctx, side, 0, func(old []byte) ([]byte, error) {
			return binary.LittleEndian.AppendUint64(nil, counted(old)+1), nil
		})
		require.NoError(t, err)
		tries += res.Tries
	}
	took := time.Since(start)
	close(stop)
	wg.Wait()
	t.Logf("%d updates in %v, %d tries; %+v", updates, took, tries, r.agent.Stats())
	require.NoError(t, side.Flush(ctx))
	require.Less(t, tries, 100*updates)
	data, _, err := side.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, updates, counted(data))
}
