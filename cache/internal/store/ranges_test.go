package store

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// What happened to records is counted by their size.
func TestRanges(t *testing.T) {
	s := newStore(t, 16, Config{})
	of := func(id int) (e kv.Events) {
		for _, r := range s.Ranges() {
			if r.ID == id {
				e = r.Events
			}
		}
		return e
	}
	n := 1024 - wire.RecordSize(1, 0)
	long := string(make([]byte, n))
	do(s, 1, set("k", long))
	do(s, 1, get("k"))
	do(s, 1, get("none"))
	q := get("k")
	q.Want, q.Expiry = kv.WantTouch, 5
	do(s, 1, q)
	require.Equal(t, kv.Events{Sets: 1, Hits: 1, Touches: 1}, of(10))
	do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpAppend, Key: []byte("k"), Value: []byte("more")}})
	require.Equal(t, kv.Events{Sets: 1}, of(11))
	do(s, 6, get("k"))
	require.Equal(t, kv.Events{Sets: 1, Expired: 1, ExpiredUnfetched: 1}, of(11))
	c := set("k", long)
	c.Want, c.CAS = kv.WantCompare, 1
	require.Equal(t, kv.NotFound, do(s, 7, c).Status)
	c.CAS = do(s, 7, set("k", long)).CAS
	require.Equal(t, kv.OK, do(s, 7, c).Status)
	require.Equal(t, kv.Exists, do(s, 7, c).Status)
	require.Equal(t, kv.OK, do(s, 7, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k")}}).Status)
	require.Equal(t, kv.Events{Sets: 3, Hits: 1, Touches: 1, CASHits: 1, CASMismatches: 1, Deletes: 1}, of(10))
	require.Equal(t, uint64(4), s.Stats().Stored)

	for i := 0; s.Stats().Evicted < 10; i++ {
		q := set(strconv.Itoa(i), string(make([]byte, n-10)))
		q.Expiry = 1000_000
		do(s, uint64(1000+i), q)
	}
	e := of(10)
	require.Equal(t, s.Stats().Evicted, e.Evicted)
	require.Equal(t, e.Evicted, e.EvictedUnfetched)
	require.Equal(t, s.Stats().EvictedIdle, e.EvictedIdle)
	require.Equal(t, e.Evicted, e.EvictedExpiring)
}

// Each call lists a part; all parts together have every record of the range once.
func TestKeys(t *testing.T) {
	s := newStore(t, 400, Config{})
	const n = 3 * keysStep
	for i := range n {
		do(s, 1, set(strconv.Itoa(i), string(make([]byte, 10+i%2*200))))
	}
	q := set("old", "0123456789")
	q.Expiry = 5
	do(s, 1, q)
	all := map[string]bool{}
	parts, from := 0, 0
	for {
		var list []kv.Listed
		list, from = s.Keys(6, 7, from, n, nil)
		require.LessOrEqual(t, len(list), keysStep)
		for _, l := range list {
			require.Equal(t, kv.Listed{Key: l.Key, Value: 10, Left: -1}, l)
			require.False(t, all[l.Key])
			all[l.Key] = true
		}
		if parts++; from == 0 {
			break
		}
	}
	require.Greater(t, parts, 2)
	require.Len(t, all, n/2)
	require.NotContains(t, all, "old")
	list, from := s.Keys(6, 9, 0, 3, nil)
	require.Len(t, list, 3)
	require.Zero(t, from)
	do(s, 7, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
	list, _ = s.Keys(7, 7, 0, n, nil)
	require.Empty(t, list)
}
