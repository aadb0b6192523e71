package lockoffload

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventWakesAll(t *testing.T) {
	var e event
	for range 200 {
		require.False(t, e.happened())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { <-e.done() })
		}
		e.happen()
		wg.Wait()
		require.True(t, e.happened())
		<-e.done()
		e = event{}
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		e.happen()
		<-e.done()
		e = event{}
	}), "when nobody has to wait")
}
