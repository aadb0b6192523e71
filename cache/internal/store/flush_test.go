package store

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A flush takes no step for each record, and is over when the clients have left it behind, or when all records are
// tombstones. What a call has found to be gone no client READs from then on.
func TestFlushIsOver(t *testing.T) {
	for _, byClients := range []bool{true, false} {
		s := newStore(t, 4, Config{})
		s.Attach(1, 0)
		var entries []wire.Entry
		for i := range 100 {
			entries = append(entries, do(s, 0, set(strconv.Itoa(i), "v")).Entry)
		}
		alive := func() (n int) {
			for _, e := range entries {
				if _, err := wire.ReadRecord(s.arena.Bytes(e.Place)); err == nil {
					n++
				}
			}
			return n
		}
		seq := do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush}}).Seq
		require.Equal(t, 100, alive())
		require.False(t, s.Flushed(seq))
		require.Zero(t, s.Stats().Items)
		require.Empty(t, s.Hot(8))
		require.NoError(t, s.Save(0, func(*snapshot.Item) error { t.Error("an item is saved"); return nil }))
		for i, op := range []kv.Op{kv.OpGet, kv.OpDelete, kv.OpReplace, kv.OpAppend} {
			require.NotEqual(t, kv.OK, do(s, 0, wire.Request{Request: kv.Request{Op: op, Key: []byte(strconv.Itoa(i))}}).Status)
			require.Equal(t, 99-i, alive(), "a call makes it a tombstone")
		}
		require.Equal(t, kv.OK, do(s, 0, set("4", "new")).Status)
		require.False(t, s.Flushed(seq))
		if byClients {
			for _, quiet := range []uint64{seq - 1, seq} {
				require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Quiet: quiet}))
				require.Equal(t, quiet == seq, s.Flushed(seq))
			}
		} else {
			require.True(t, s.Tick(0, 10), "there is more to do")
			require.Equal(t, 85, alive())
			for s.Tick(0, 10) {
			}
			require.True(t, s.Flushed(seq))
			require.Zero(t, alive())
		}
		require.Equal(t, kv.OK, do(s, 0, get("4")).Status)
		require.Equal(t, 1, s.Stats().Items)
	}
}

// A client that comes while records of a flush are still there takes none of them for alive.
func TestNewClientAfterAFlush(t *testing.T) {
	s := newStore(t, 4, Config{})
	key := []byte("k")
	e := do(s, 0, set("k", "v")).Entry
	do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
	m := mirror.New(mirror.Config{})
	b := s.Begin(0)
	b, err := wire.ReadMap(wire.AppendMap(nil, &b))
	require.NoError(t, err)
	m.Begin(&b)
	var c wire.Chunk
	s.Chunk(0, 0, 1000, &c)
	require.NotEmpty(t, c.Entries, "it is still in the table")
	require.NoError(t, m.Chunk(&c))
	require.Empty(t, m.Lookup(e.Fingerprint, nil))
	_, verdict := m.Judge(s.arena.Bytes(e.Place), &e, key, 0) // as by a bucket's entry
	require.Equal(t, mirror.Ask, verdict)
	require.Equal(t, kv.NotFound, do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpGet, Key: key}}).Status)
	e = do(s, 0, set("k", "v")).Entry
	_, verdict = m.Judge(s.arena.Bytes(e.Place), &e, key, 0)
	require.Equal(t, mirror.Hit, verdict)
}

// What has expired or was flushed makes room before any live record, and time reclaims all of it.
func TestReclaimedFirst(t *testing.T) {
	for _, flushed := range []bool{true, false} {
		s := newStore(t, 16, Config{})
		value := string(make([]byte, 400))
		n := 0
		for ; s.Stats().Arena.Live < s.limit()*3/4; n++ {
			q := set("old"+strconv.Itoa(n), value)
			q.Expiry = 100
			do(s, 1, q)
		}
		if flushed {
			do(s, 2, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
		}
		for i := range n {
			require.Equal(t, kv.OK, do(s, 200, set("new"+strconv.Itoa(i), value)).Status)
		}
		require.Zero(t, s.Stats().Evicted)
		for s.Tick(200, 10) {
		}
		require.Equal(t, n, s.Stats().Items)
		require.Equal(t, n, s.table.Len())
	}
}

// What was flushed makes room, and does not move.
func TestFlushedDoesNotMove(t *testing.T) {
	s := newStore(t, 4, Config{})
	e := do(s, 0, set("k", "v")).Entry
	do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
	s.move(e.Item)
	require.Equal(t, []any{0, uint64(0), uint64(0)}, []any{s.table.Len(), s.Stats().Moved, s.Stats().Evicted})
	require.Zero(t, s.Stats().Arena.Live)
}

// What was flushed has not expired, though its time has come when it is found.
func TestFlushedDoesNotExpire(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Expiry = 10
	require.Equal(t, kv.OK, do(s, 1, q).Status)
	require.Equal(t, kv.OK, do(s, 2, wire.Request{Request: kv.Request{Op: kv.OpFlush}}).Status)
	s.now = 1000
	require.True(t, s.reclaim())
	require.Zero(t, s.Stats().Expired)
	require.Zero(t, s.Stats().Arena.Live)
}

// A number that was fetched is so after it was changed, too.
func TestArithKeepsFetched(t *testing.T) {
	s := newStore(t, 4, Config{})
	require.Equal(t, kv.OK, do(s, 1, set("n", "17")).Status)
	require.Equal(t, kv.OK, do(s, 1, get("n")).Status)
	require.Equal(t, kv.OK, do(s, 1, wire.Request{Request: kv.Request{Op: kv.OpArith, Key: []byte("n"), Delta: 3}}).Status)
	require.True(t, s.items[0].fetched)
}
