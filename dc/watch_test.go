//go:build linux && cgo

package dc

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// TestWatchGivesWay: a goroutine that must see all that has come waits for one that has polled
// and not handled yet, and none waits in the queue meanwhile.
func TestWatchGivesWay(t *testing.T) {
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{MaxCQE: 1 << 16})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	cq, err := d.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	var mu sync.Mutex
	var w watch
	w.init(cq, &mu)

	ctx, cancel := context.WithCancel(context.Background())
	polled, handle, ended := make(chan bool), make(chan bool), make(chan error)
	handled := false
	go func() {
		for {
			mu.Lock()
			inner := w.enter(ctx)
			mu.Unlock()
			_, err := w.wait(ctx, inner, make([]verbs.WC, 1))
			polled <- true
			<-handle
			mu.Lock()
			handled = true
			w.leave()
			mu.Unlock()
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return w.inside
	}, 5*time.Second, time.Millisecond)
	excluded := make(chan bool)
	go func() {
		mu.Lock()
		defer mu.Unlock()
		w.exclude()
		if !handled {
			t.Error("what was polled has not been handled")
		}
		handled = false
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		mu.Lock()
		if handled {
			t.Error("somebody waits meanwhile")
		}
		w.admit()
		close(excluded)
	}()
	<-polled // woken
	handle <- true
	<-excluded
	cancel()
	<-polled
	handle <- true
	require.ErrorIs(t, <-ended, context.Canceled)
}
