package server

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

// A request for memory that stays in quarantine, or that others are always faster to take, is refused
// after two leases, and does not wait for ever.
func TestWaitForQuarantineEnds(t *testing.T) {
	s := &Server{store: newStore(t, 4), cfg: Config{Lease: 500 * time.Millisecond}}
	s.stopped, s.stop = context.WithCancel(t.Context())
	s.tell = time.AfterFunc(time.Hour, func() {})
	s.store.Attach(1, s.now()) // a client that says nothing, and is not cut off
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() { // tell of memory, and take it
		for ctx.Err() == nil {
			s.mu.Lock()
			s.settle()
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 10_000 {
		a, err := s.Do(ctx, &kv.Request{Op: kv.OpSet, Key: []byte(strconv.Itoa(i)), Value: make([]byte, 1000)})
		require.NoError(t, err)
		if a.Status == kv.NoMemory {
			return
		}
		require.Equal(t, kv.OK, a.Status)
	}
	require.Fail(t, "there was always memory")
}
