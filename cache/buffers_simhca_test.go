//go:build simhca && linux && cgo

package cache_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
)

// Many long GETs at once have 16 MiB of registered memory, of which little is left when they are over.
func TestSimulatedMemoryOfLongGets(t *testing.T) {
	const most, left = 16 << 20, 1 << 20
	ctx := within(t)
	s, i := simulatedPair(t, server.Config{Memory: 64 << 20, MaxValue: 24 << 20})
	c, err := cache.Dial(ctx, s.Addr().String(), cache.Config{DC: i, MaxRecord: 32 << 20})
	require.NoError(t, err)
	defer c.Close()
	set := func(key string, size int) []byte {
		v := bytes.Repeat([]byte(key[:1]), size)
		require.NoError(t, c.Set(ctx, []byte(key), cache.Item{Value: v}, 0))
		return v
	}
	long, huge := set("long", 1<<20), set("huge", 24<<20)
	var many [][]byte
	for k := range 40 {
		many = append(many, fmt.Appendf(nil, "many %d", k))
		set(string(many[k]), 30<<10)
	}
	whole(t, c, 42)
	var all sync.WaitGroup
	var gets sync.Mutex // guards highest
	highest := 0
	look := func() {
		gets.Lock()
		highest = max(highest, c.Stats().ReadBytes)
		gets.Unlock()
	}
	for k := range 300 {
		all.Go(func() {
			if k%10 == 0 {
				for _, r := range c.GetMulti(ctx, many, nil) {
					assert.NoError(t, r.Err)
				}
			}
			it, err := c.Get(ctx, []byte("long"))
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(long, it.Value))
			look()
		})
	}
	all.Wait()
	t.Logf("%d bytes at most, %d when the last GET is over", highest, c.Stats().ReadBytes)
	require.LessOrEqual(t, highest, most+left+(4<<20), "long buffers, and what is short")
	require.Eventually(t, func() bool { return c.Stats().ReadBytes <= left }, stuck, time.Millisecond)

	it, err := c.Get(ctx, []byte("huge")) // more than all turns
	require.NoError(t, err)
	require.True(t, bytes.Equal(huge, it.Value))
	it, err = c.Get(ctx, []byte("long"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(long, it.Value))
	require.Eventually(t, func() bool { return c.Stats().ReadBytes <= left }, stuck, time.Millisecond)
	hits := c.Stats().Hits
	require.EqualValues(t, 302+30*40, hits, "all by READ")
}
