package alarm

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The earliest time counts, until the function was called.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var called []time.Duration
		var a Alarm
		a.Init(func() { called = append(called, time.Since(start)) }, time.Millisecond)
		a.Set(9*time.Millisecond, 0)
		a.Set(5*time.Millisecond, 0)
		a.Set(7*time.Millisecond, 0)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		a.Set(20*time.Millisecond, 20*time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		a.Set(40*time.Millisecond, 30*time.Millisecond)
		a.Stop()
		a.Set(41*time.Millisecond, 30*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []time.Duration{5 * time.Millisecond, 21 * time.Millisecond}, called)
	})
}

// The function may take the lock under which the alarm is set; Stop waits for it.
func TestStopWaits(t *testing.T) {
	var owner sync.Mutex
	running := false
	for range 200 {
		var a Alarm
		a.Init(func() {
			owner.Lock()
			running = true
			owner.Unlock()
			time.Sleep(10 * time.Microsecond)
			owner.Lock()
			running = false
			a.Set(1, 0)
			owner.Unlock()
		}, time.Microsecond)
		owner.Lock()
		a.Set(1, 0)
		owner.Unlock()
		time.Sleep(20 * time.Microsecond)
		a.Stop()
		require.False(t, running)
	}
}
