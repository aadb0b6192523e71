//go:build simhca && linux && cgo

package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
)

// Operations are counted by the transport of their client: of one by TCP, of one that READs through
// the target and calls by TCP, and of this process. Of READs one in eight is timed, and counts eight times.
func TestSimulatedLatencies(t *testing.T) {
	ctx := within(t)
	s, i := simulatedPair(t, server.Config{})
	through, err := cache.Dial(ctx, s.Addr().String(), cache.Config{DC: i})
	require.NoError(t, err)
	defer through.Close()
	tcp, err := cache.Dial(ctx, s.Addr().String(), cache.Config{})
	require.NoError(t, err)
	defer tcp.Close()
	require.Equal(t, cache.TCP, tcp.Stats().Transport)
	begun := time.Now()
	for k := range 3 {
		require.NoError(t, through.Set(ctx, key(k), cache.Item{Value: key(k)}, 0))
		_, err = tcp.Get(ctx, key(k))
		require.NoError(t, err)
		require.NoError(t, tcp.Touch(ctx, key(k), time.Hour))
	}
	whole(t, through, 3)
	for k := range 5 { // so that the next one is timed
		_, err = through.Get(ctx, key(k%3))
		require.NoError(t, err)
	}
	_, err = s.Do(ctx, &kv.Request{Op: kv.OpDelete, Key: key(0)})
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"store dc": 3, "read dc": 8}, counts(through.Stats().Latencies))
	require.Equal(t, map[string]uint64{"get tcp": 3, "touch tcp": 3}, counts(tcp.Stats().Latencies))
	require.Equal(t, map[string]uint64{"store tcp": 3, "get tcp": 3, "touch tcp": 3, "delete gateway": 1}, counts(s.Stats().Latencies))
	require.Equal(t, map[string]int{server.ModeWhole: 0, server.ModeBounded: 0, server.ModeNone: 0, server.ModeDC: 1, server.ModeTCP: 1}, s.Stats().Modes)
	all := through.Stats().Latencies
	for _, l := range s.Stats().Latencies {
		all = append(all, cache.Latency(l))
	}
	for _, l := range all {
		times := uint64(1)
		if l.Operation == "read" {
			times = 8
		}
		require.Less(t, time.Duration(l.Nanoseconds.Sum/times), time.Since(begun))
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = through.Get(canceled, key(1))
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 8, counts(through.Stats().Latencies)["read dc"], "what did not happen took no time")
}
