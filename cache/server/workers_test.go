package server

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// waiting is how many of the workers wait for something to do.
func (c *workers) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

// Things that follow each other are done by one goroutine; those that wait for something hold up no
// other ones, and only so many goroutines stay as may have something to do again.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c workers
		var n atomic.Int32
		for i := range 100 {
			c.run(func() { n.Add(1) })
			synctest.Wait()
			require.EqualValues(t, i+1, n.Load())
			require.Equal(t, 1, c.waiting())
		}
		on := make(chan struct{})
		const many = maxIdle + 4
		for range many {
			c.run(func() {
				<-on
				n.Add(1)
			})
		}
		c.run(func() { n.Add(1) })
		synctest.Wait()
		require.EqualValues(t, 101, n.Load())
		require.Equal(t, 1, c.waiting())
		close(on)
		synctest.Wait()
		require.EqualValues(t, 101+many, n.Load())
		require.Equal(t, maxIdle, c.waiting())
		c.close()
		require.Zero(t, c.waiting())
	})
}

// Workers with nothing to do between two trims end, the others stay.
func TestWorkersIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c workers
		together := func(n int) {
			on := make(chan struct{})
			for range n {
				c.run(func() { <-on })
			}
			close(on)
			synctest.Wait()
		}
		c.trim()
		together(8)
		c.trim() // before that there was none
		require.Equal(t, 8, c.waiting())
		together(3)
		c.trim()
		synctest.Wait()
		require.Equal(t, 3, c.waiting())
		c.trim()
		synctest.Wait()
		require.Zero(t, c.waiting())
		together(2)
		require.Equal(t, 2, c.waiting(), "others come when there is something to do")
		c.close()
	})
}

// A pool that is closed still does what it is told to, and keeps no worker for it; close waits for
// what is being done.
func TestWorkersCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c workers
		var done, closed atomic.Bool
		on := make(chan struct{})
		c.run(func() {
			<-on
			done.Store(true)
		})
		go func() {
			c.close()
			require.True(t, done.Load())
			closed.Store(true)
		}()
		synctest.Wait()
		require.False(t, closed.Load())
		close(on)
		synctest.Wait()
		require.True(t, closed.Load())
		var late sync.WaitGroup
		late.Add(1)
		c.run(late.Done)
		late.Wait()
		synctest.Wait()
		require.Zero(t, c.waiting())
	})
}
