//go:build simhca && linux && cgo

package dc_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
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
		i := a.initiator(t, dc.InitiatorConfig{CQ: cq, Contexts: 1})
		p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
		do(t, i, p, a.write(1, b, 0)) // it is attached
		qpn := uint32(0)
		if backend == dc.Hardware {
			qpn = i.DCI(0)
		} else {
			qpn = i.ContextQP(0)
		}
		require.NoError(t, simhca.Hold("mlx5_0", qpn, 5*time.Millisecond)) // a look at once finds nothing
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
		asks.Store(true)
		do(t, i, p, a.write(2, b, 0))
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
