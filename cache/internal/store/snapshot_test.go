package store

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// saved is what a snapshot has of a store.
func saved(t *testing.T, s *Store, now uint64) (h snapshot.Head, items []snapshot.Item) {
	h = s.Head(now, 0)
	require.NoError(t, s.Save(now, func(it *snapshot.Item) error {
		c := *it
		c.Key, c.Value = bytes.Clone(it.Key), bytes.Clone(it.Value)
		items = append(items, c)
		return nil
	}))
	return h, items
}

// resumed is the next life of a store.
func resumed(t *testing.T, h snapshot.Head, items []snapshot.Item, passed uint64) (*Store, int) {
	s, n := newStore(t, 8, Config{Secret: wire.Secret{5, 6}}), 0
	for i := range items {
		if i == 0 && !s.Resume(1, &h, passed) {
			break
		}
		if s.Restore(1, &items[i], passed) == kv.OK {
			n++
		}
	}
	return s, n
}

func ask(s *Store, now uint64, op kv.Op, key string, q wire.Request) wire.Reply {
	q.Op, q.Key = op, []byte(key)
	a := s.Do(now, &q)
	a.Value = bytes.Clone(a.Value)
	return a
}

// What was stored before is there afterwards: value, flags, CAS number, marks, and as much
// time as was left.
func TestSnapshotAndBack(t *testing.T) {
	s := newStore(t, 4, Config{})
	set := ask(s, 10, kv.OpSet, "a", wire.Request{Request: kv.Request{Value: []byte("value"), Flags: 5, Expiry: 1000}})
	ask(s, 10, kv.OpSet, "stale", wire.Request{Request: kv.Request{Value: []byte("old")}})
	ask(s, 10, kv.OpDelete, "stale", wire.Request{Request: kv.Request{Want: kv.WantStale}})
	ask(s, 10, kv.OpSet, "short", wire.Request{Request: kv.Request{Expiry: 50}})
	ask(s, 10, kv.OpSet, "shorter", wire.Request{Request: kv.Request{Expiry: 5}})
	ask(s, 10, kv.OpSet, "gone", wire.Request{})
	ask(s, 10, kv.OpDelete, "gone", wire.Request{})
	last := ask(s, 11, kv.OpSet, "last", wire.Request{})
	ask(s, 12, kv.OpGet, "a", wire.Request{})
	h, items := saved(t, s, 20)
	require.Len(t, items, 4)
	require.Equal(t, "a", string(items[3].Key), "the last to be accessed is the last")

	s, n := resumed(t, h, items, 100)
	require.Equal(t, 3, n, "one has expired meanwhile")
	a := ask(s, 1, kv.OpGet, "a", wire.Request{})
	require.Equal(t, kv.OK, a.Status)
	require.Equal(t, "value", string(a.Value))
	require.Equal(t, uint32(5), a.Flags)
	require.Equal(t, set.CAS, a.CAS)
	require.Equal(t, uint64(1+1000-10-100), a.Expiry)
	require.NotZero(t, a.Bits&kv.ReplyFetched)
	require.NotZero(t, ask(s, 1, kv.OpGet, "stale", wire.Request{}).Bits&kv.ReplyStale)
	for _, key := range []string{"gone", "short", "shorter"} {
		require.Equal(t, kv.NotFound, ask(s, 1, kv.OpGet, key, wire.Request{}).Status, key)
	}
	// A CAS number of before fits what did not change, and nothing else.
	require.Equal(t, kv.OK, ask(s, 2, kv.OpSet, "a", wire.Request{Request: kv.Request{Want: kv.WantCompare, CAS: set.CAS}}).Status)
	again := ask(s, 2, kv.OpGet, "a", wire.Request{})
	require.Greater(t, again.CAS, last.CAS, "no number twice")
	require.Equal(t, kv.Exists, ask(s, 2, kv.OpSet, "a", wire.Request{Request: kv.Request{Want: kv.WantCompare, CAS: set.CAS}}).Status)
	s, _ = resumed(t, h, items, 100)
	require.Equal(t, kv.OK, ask(s, 890, kv.OpGet, "a", wire.Request{}).Status)
	require.Equal(t, kv.NotFound, ask(s, 891, kv.OpGet, "a", wire.Request{}).Status)
}

// A flush that was to come comes.
func TestSnapshotKeepsTheFlush(t *testing.T) {
	s := newStore(t, 4, Config{})
	ask(s, 10, kv.OpSet, "a", wire.Request{})
	s.Do(10, &wire.Request{Request: kv.Request{Op: kv.OpFlush, Want: kv.WantIfLater, Expiry: 1000}})
	h, items := saved(t, s, 110)
	require.Equal(t, uint64(900), h.FlushIn)
	s, _ = resumed(t, h, items, 400)
	require.Equal(t, kv.OK, ask(s, 500, kv.OpGet, "a", wire.Request{}).Status)
	require.Equal(t, kv.NotFound, ask(s, 501, kv.OpGet, "a", wire.Request{}).Status)
	s, _ = resumed(t, h, items, 900)
	require.Equal(t, kv.NotFound, ask(s, 1, kv.OpGet, "a", wire.Request{}).Status, "it would have come meanwhile")
}

// With less memory the records stay that were accessed last.
func TestSnapshotIntoLessMemory(t *testing.T) {
	s := newStore(t, 60, Config{})
	for i := range 3000 {
		ask(s, uint64(i+1), kv.OpSet, fmt.Sprint(i), wire.Request{Request: kv.Request{Value: make([]byte, 900)}})
	}
	h, items := saved(t, s, 3000)
	require.Greater(t, len(items), 2500)
	s, n := resumed(t, h, items, 0)
	require.Equal(t, len(items), n)
	require.Less(t, s.Stats().Items, 1200)
	require.Equal(t, kv.OK, ask(s, 3000, kv.OpGet, "2999", wire.Request{}).Status)
	require.Equal(t, kv.NotFound, ask(s, 3000, kv.OpGet, "5", wire.Request{}).Status)
}

// The CAS numbers of a life without a snapshot are none of another's, nor are they when the
// snapshot is of a life that had lower ones.
func TestStoreBeginsItsCASNumbers(t *testing.T) {
	s := newStore(t, 4, Config{CAS: 1000})
	first := ask(s, 1, kv.OpSet, "a", wire.Request{})
	require.Equal(t, uint64(1001), first.CAS)
	s = newStore(t, 4, Config{CAS: 2000})
	ask(s, 1, kv.OpSet, "a", wire.Request{Request: kv.Request{Value: []byte("another's")}})
	require.Equal(t, kv.Exists, ask(s, 1, kv.OpSet, "a", wire.Request{Request: kv.Request{Want: kv.WantCompare, CAS: first.CAS}}).Status)
	s = newStore(t, 4, Config{CAS: 3000})
	require.True(t, s.Resume(1, &snapshot.Head{CAS: 2001}, 0))
	require.Equal(t, uint64(3001), ask(s, 1, kv.OpSet, "a", wire.Request{}).CAS)
}
