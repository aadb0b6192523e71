package store

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// listAll returns what a store lists of a shard.
func listAll(t *testing.T, s *Store, now uint64, shard int) map[string]wire.Listed {
	t.Helper()
	all, set := make(map[string]wire.Listed), place.Set{}
	set[shard] = true
	for cursor := uint64(0); ; {
		a := do(s, now, wire.Request{Request: kv.Request{Op: wire.OpList, Value: set.Append(nil), Initial: cursor}})
		require.Equal(t, kv.OK, a.Status)
		for rest := a.Value; len(rest) > 0; {
			l, r, err := wire.ReadListed(rest)
			require.NoError(t, err)
			all[string(l.Key)], rest = l, r
		}
		if cursor = a.Number; cursor == 0 {
			return all
		}
	}
}

// An item of a cluster's store has no more than eight bytes more than the fields of one without shards.
func TestItemSize(t *testing.T) {
	without := reflect.TypeFor[struct {
		place                                         wire.Place
		version, fingerprint, expiry, accessed, trail uint64
		fetched                                       bool
	}]()
	require.LessOrEqual(t, reflect.TypeFor[item]().Size(), without.Size()+8)
}

// A shard's records are listed, all of them and no others, and are dropped: the others stay.
func TestShards(t *testing.T) {
	s := newStore(t, 64, Config{})
	s.Join(3)
	const n = 3000
	shards := make(map[int]int)
	for i := range n {
		key := fmt.Sprint("key ", i)
		require.Equal(t, kv.OK, do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte(key), Expiry: int64(10 * (i % 2))}}).Status)
		shards[place.ShardOf([]byte(key))]++
	}
	shard := place.ShardOf([]byte("key 0"))
	do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpGet, Key: []byte("key 0")}})
	all := listAll(t, s, 4, shard)
	require.Len(t, all, shards[shard])
	for key, l := range all {
		require.Equal(t, shard, place.ShardOf([]byte(key)))
		require.Equal(t, key == "key 0", l.Fetched)
		if l.Left != 0 {
			require.Equal(t, uint64(7), l.Left)
		}
		require.Equal(t, do(s, 4, get(key)).CAS, l.CAS)
	}
	for key := range listAll(t, s, 11, shard) {
		require.Zero(t, all[key].Left, "others have expired")
	}
	dropped := place.Set{}
	dropped[shard] = true
	for next, steps := s.Drop(11, &dropped, 0, 100), 1; next != 0; steps++ {
		require.Equal(t, 100*steps, next)
		next = s.Drop(11, &dropped, next, 100)
	}
	require.Empty(t, listAll(t, s, 11, shard))
	require.Equal(t, kv.NotFound, do(s, 11, get("key 0")).Status)
	found := 0
	for i := range n {
		if do(s, 1, get(fmt.Sprint("key ", i))).Status == kv.OK {
			found++
		}
	}
	require.InDelta(t, n/2, found, n/50)
}

// A list of many records comes in parts.
func TestListInParts(t *testing.T) {
	s := newStore(t, 64, Config{})
	const n = 1500 // of long keys, all in shard 0, since the store has no shards
	for i := range n {
		require.Equal(t, kv.OK, do(s, 1, set(fmt.Sprintf("%0200d", i), "")).Status)
	}
	first := do(s, 1, wire.Request{Request: kv.Request{Op: wire.OpList, Value: (&place.Set{0: true}).Append(nil)}})
	require.NotZero(t, first.Number)
	require.InDelta(t, listBytes, len(first.Value), wire.MaxListed)
	require.Len(t, listAll(t, s, 1, 0), n)
	do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
	require.Empty(t, listAll(t, s, 1, 0))
}

// A flush that is to come removes a record also from the server that has it by then: its time is at most that of the flush.
func TestListBeforeAFlush(t *testing.T) {
	s := newStore(t, 64, Config{})
	for key, ttl := range map[string]int64{"never": 0, "before": 10, "after": 100} {
		require.Equal(t, kv.OK, do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte(key), Expiry: ttl}}).Status)
	}
	do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpFlush, Want: kv.WantIfLater, Expiry: 50}})
	all := listAll(t, s, 2, 0)
	require.Equal(t, uint64(49), all["never"].Left)
	require.Equal(t, uint64(9), all["before"].Left)
	require.Equal(t, uint64(49), all["after"].Left)
}

// Stores with different numbers give out different CAS numbers, which rise.
func TestCASNumbersOfACluster(t *testing.T) {
	var before uint64
	for number := range uint8(3) {
		s := newStore(t, 4, Config{CAS: 1000})
		s.Join(number + 1)
		before = 1000
		for range 3 {
			cas := do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("a")}})
			require.Greater(t, cas.CAS, before)
			require.Equal(t, uint64(number+1), cas.CAS%256)
			before = cas.CAS
		}
	}
}
