//go:build simhca && linux && cgo

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/internal/simrules"
)

// cut has all packets of the fabric lost from one address to another for some time.
func cut(t *testing.T, from, to string, d time.Duration) {
	t.Helper()
	file, err := simrules.OwnFile()
	require.NoError(t, err)
	require.NoError(t, simrules.Write(file, fmt.Sprintf("%s %s cut", from, to)))
	time.Sleep(d)
	require.NoError(t, simrules.Clear(file))
}

// here is the address of this process in the fabric.
const here = "127.0.0.1"

// One way is cut while calls are under way, for less time than the transport tries again, and for longer. No call hangs,
// by this connection or the next.
func TestFabricWayIsCut(t *testing.T) {
	inFabric(t)
	const host = "127.0.0.11"
	address := fmt.Sprintf("%s:%d", host, port)
	p, ended := startProcess(t, fmt.Appendf(nil, `{"listen": %q, "memory": "8MiB", "lease": "1m"}`, address), "SIMHCA_ADDRESS="+host)
	t.Cleanup(func() {
		_ = p.Kill()
		<-ended
	})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var c *cache.Client
	require.Eventually(t, func() (ok bool) {
		var err error
		c, err = cache.Dial(ctx, address, cache.Config{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	var done atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	for w := range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				if c.Set(ctx, fmt.Appendf(nil, "key %d", w), cache.Item{}, 0) == nil {
					done.Add(1)
				}
			}
		})
	}
	goesOn := func() {
		t.Helper()
		before := done.Load()
		const ring = 200 // messages: more than are under way between two processes
		require.Eventually(t, func() bool { return done.Load() > before+ring }, time.Minute, time.Millisecond)
	}
	for _, d := range []time.Duration{50 * time.Millisecond, 800 * time.Millisecond, 800 * time.Millisecond} {
		for _, ends := range [][2]string{{here, host}, {host, here}} {
			goesOn()
			cut(t, ends[0], ends[1], d)
		}
		goesOn()
	}
	require.Greater(t, c.Stats().Sessions, uint64(1))
	require.NoError(t, c.Close())
}
