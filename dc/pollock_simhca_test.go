//go:build simhca && linux && cgo

package dc_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// bystander shares a completion queue.
type bystander struct{}

func (bystander) Completed(uint64, *verbs.WC) {}
func (bystander) Lost(error)                  {}

// What a back end does may take time, and wait for others of the completion queue: no call that
// posts and polls does it while it has the poll lock.
func TestSimulatedPollLockIsNotKept(t *testing.T) {
	a, b := dcHosts(t)
	for _, backend := range []dc.Backend{dc.Software, dc.Hardware} {
		a.backend, b.backend = backend, backend
		cq, err := a.dev.CreateCQ(verbs.CQConfig{Depth: 1024})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cq.Close()) })
		var is [2]*dc.Initiator
		var ps [2]*dc.Peer
		for k := range is {
			is[k] = a.initiator(t, dc.InitiatorConfig{CQ: cq, Contexts: 1})
			ps[k] = resolve(t, is[k], b.target(t, dc.TargetConfig{}), 0)
			do(t, is[k], ps[k], a.write(1, b, 0)) // it is attached
		}
		i, p := is[0], ps[0]
		// others has a look that follows find what it must not dispatch with the initiator's lock.
		others := func() {
			n, err := is[1].Post(ps[1], a.write(4, b, 0))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			time.Sleep(5 * time.Millisecond)
		}
		var asks atomic.Bool
		var asked, kept atomic.Int32
		i.OnPerform(func() {
			if !asks.Load() {
				return
			}
			asked.Add(1)
			d, err := cq.Dispatch(bystander{}, 1)
			require.NoError(t, err)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = d.Close() // which takes the poll lock
			}()
			select {
			case <-closed:
			case <-time.After(time.Second):
				kept.Add(1)
			}
		})
		others()
		asks.Store(true)
		require.NoError(t, i.Do(t.Context(), p, a.write(2, b, 0)))
		asks.Store(false)
		require.NotZero(t, asked.Load(), backend)
		others()
		asks.Store(true)
		_, n, err := i.PostPoll(p, make([]dc.Completion, 1), 0, a.write(3, b, 0))
		require.NoError(t, err)
		if n == 0 {
			wait(t, i, 1)
		}
		asks.Store(false)
		require.NotZero(t, asked.Load(), backend)
		require.Zero(t, kept.Load(), "%v: another goroutine could not poll for a second", backend)
	}
}
