package cache

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// No server of a cluster owns its shards for longer than the longest TTL.
func TestGrantIsBounded(t *testing.T) {
	for _, g := range []struct {
		until, clock uint64
		err          error
	}{
		{61_999, 1000, nil},
		{62_000, 1000, nil},
		{62_001, 1000, wire.Malformed},
		{math.MaxUint64, 1000, wire.Malformed},
		{0, 1000, nil},
		{math.MaxUint64, math.MaxUint64 - 1000, nil},
	} {
		_, s := offline(t, Config{})
		s.mu.Lock()
		s.askGrant()
		id := s.granter
		s.mu.Unlock()
		err := s.replied(wire.AppendReply(nil, &wire.Reply{ID: id, Epoch: 1, Reply: kv.Reply{Status: kv.OK, Number: g.until, Clock: g.clock}}))
		if g.err == nil {
			require.NoError(t, err, "until %d at %d", g.until, g.clock)
		} else {
			require.ErrorIs(t, err, g.err, "until %d at %d", g.until, g.clock)
		}
	}
}
