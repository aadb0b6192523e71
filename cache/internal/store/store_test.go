package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

func newStore(t testing.TB, pages int, cfg Config) *Store {
	a, err := arena.New(simPage)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, pages*simPage))
	require.NoError(t, err)
	cfg.Epoch, cfg.Arena = 7, a
	cfg.AllocTable = func(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{Key: 1} }
	if cfg.FreeTable == nil {
		cfg.FreeTable = func([]byte) {}
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

func do(s *Store, now uint64, q wire.Request) wire.Reply {
	a := s.Do(now, &q)
	a.Value = append([]byte{}, a.Value...)
	return a
}

func set(key, value string) wire.Request {
	return wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte(key), Value: []byte(value)}}
}

func get(key string) wire.Request {
	return wire.Request{Request: kv.Request{Op: kv.OpGet, Key: []byte(key)}}
}

// Whether a record expires soon is said by whole seconds that are left, the one that has begun among them, as
// memcached says it: one of 30 s does not expire within 30 s at once, but a second later.
func TestExpiresSoon(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Expiry = 30_000
	won := func(now uint64, within int64) bool {
		g := get("k")
		g.Want, g.Recache = kv.WantRecache, within
		a := do(s, now, g)
		require.Equal(t, kv.OK, a.Status)
		return a.Bits&kv.ReplyWon != 0
	}
	for _, c := range []struct {
		at     uint64
		within int64
		soon   bool
	}{{0, 30_000, false}, {1, 30_000, false}, {999, 30_000, false}, {1000, 30_000, true}, {1, 31_000, true}, {29_999, 1000, false},
		{29_999, 0, false}, {29_999, -1000, false}, {1, 1 << 50, true}} {
		require.Equal(t, kv.OK, do(s, 100, q).Status) // no client has won it
		require.Equal(t, c.soon, won(100+c.at, c.within), "%+v", c)
		s.now = 0
	}
	q.Expiry = 0
	do(s, 100, q)
	require.False(t, won(100, 1<<50), "it never does")
}

func TestStoreExpires(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Expiry = 10
	require.Equal(t, kv.OK, do(s, 100, q).Status)
	require.Equal(t, kv.OK, do(s, 109, get("k")).Status)
	require.Equal(t, kv.NotFound, do(s, 110, get("k")).Status)
	require.Equal(t, kv.NotFound, do(s, 0, get("k")).Status, "time does not go back")
	q.Expiry = -1
	do(s, 120, q)
	require.Equal(t, kv.NotFound, do(s, 120, get("k")).Status)
	q.Expiry = 5
	do(s, 120, q)
	s.Tick(125, 10)
	require.Zero(t, s.Stats().Items, "what expires goes without being asked for")
	touch := get("k")
	touch.Want, touch.Expiry = kv.WantTouch, 100
	do(s, 126, set("k", "v"))
	cas := do(s, 126, get("k")).CAS
	require.Equal(t, uint64(226), do(s, 126, touch).Expiry)
	require.Equal(t, cas, do(s, 127, get("k")).CAS, "touching keeps the number")
}

func TestStoreCompares(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Want, q.CAS = kv.WantCompare, 1
	require.Equal(t, kv.NotFound, do(s, 0, q).Status)
	first := do(s, 0, set("k", "1")).CAS
	q.CAS = first + 1
	require.Equal(t, kv.Exists, do(s, 0, q).Status)
	q.CAS = first
	require.Equal(t, kv.OK, do(s, 0, q).Status)
	require.Equal(t, kv.Exists, do(s, 0, q).Status)
	d := wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k"), Want: kv.WantCompare, CAS: first}}
	require.Equal(t, kv.Exists, do(s, 0, d).Status)
	require.Equal(t, wire.WrongEpoch, do(s, 0, wire.Request{Epoch: 6, Request: kv.Request{Op: kv.OpGet, Key: []byte("k")}}).Status)
}

func TestStoreCounts(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := wire.Request{Request: kv.Request{Op: kv.OpArith, Key: []byte("k"), Delta: 3}}
	require.Equal(t, kv.NotFound, do(s, 0, q).Status)
	q.Want, q.Initial = kv.WantVivify, 9
	require.Equal(t, uint64(9), do(s, 0, q).Number)
	require.Equal(t, uint64(12), do(s, 0, q).Number)
	q.Want, q.Delta = kv.WantDecr, 5
	require.Equal(t, uint64(7), do(s, 0, q).Number)
	require.Equal(t, "7 ", string(do(s, 0, get("k")).Value))
	q.Delta = 100
	require.Zero(t, do(s, 0, q).Number)
	do(s, 0, set("k", "18446744073709551615"))
	q.Want, q.Delta = 0, 2
	require.Equal(t, uint64(1), do(s, 0, q).Number, "it wraps")
	do(s, 0, set("k", "seven"))
	require.Equal(t, kv.NotNumeric, do(s, 0, q).Status)
}

// A stale value is handed out with a win for one client.
func TestStoreStale(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	old := do(s, 0, set("k", "w")).CAS
	require.Equal(t, kv.OK, do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k"), Want: kv.WantStale}}).Status)
	require.Equal(t, uint16(kv.ReplyStale), do(s, 0, get("k")).Bits, "who does not ask does not win")
	win := get("k")
	win.Want = kv.WantWin
	require.Equal(t, uint16(kv.ReplyStale|kv.ReplyWon|kv.ReplyFetched), do(s, 0, win).Bits)
	require.Equal(t, uint16(kv.ReplyStale|kv.ReplySent|kv.ReplyFetched), do(s, 0, win).Bits)
	late := set("k", "late")
	late.Want, late.CAS = kv.WantCompare|kv.WantStale, old
	require.Equal(t, kv.OK, do(s, 0, late).Status)
	a := do(s, 0, win)
	require.Equal(t, "late", string(a.Value))
	require.Equal(t, uint16(kv.ReplyStale|kv.ReplySent), a.Bits)
}

// A client that makes a record by asking for it has seen it, unless it leaves no trace.
func TestStoreVivifies(t *testing.T) {
	s := newStore(t, 4, Config{})
	for _, trace := range []uint32{0, kv.WantNoBump} {
		q := get("k")
		q.Want = kv.WantVivify | trace
		a := do(s, 0, q)
		require.Equal(t, kv.OK, a.Status)
		require.Equal(t, uint16(kv.ReplyWon|kv.ReplyCreated), a.Bits)
		require.Equal(t, trace == 0, do(s, 1, get("k")).Bits&kv.ReplyFetched != 0)
		do(s, 2, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k")}})
	}
}

func TestStoreFlushes(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("a", "v"))
	e := do(s, 0, set("b", "v")).Entry
	rec := append([]byte{}, s.arena.Bytes(e.Place)...)
	_, err := wire.ReadRecord(rec)
	require.NoError(t, err)
	later := wire.Request{Request: kv.Request{Op: kv.OpFlush, Want: kv.WantIfLater, Expiry: 50}}
	do(s, 0, later)
	do(s, 20, set("c", "v"))
	require.Equal(t, kv.OK, do(s, 49, get("a")).Status)
	require.Equal(t, kv.NotFound, do(s, 50, get("c")).Status)
	require.Zero(t, s.Stats().Items)
	require.False(t, s.Tick(50, 100))
	_, err = wire.ReadRecord(s.arena.Bytes(e.Place))
	require.ErrorIs(t, err, wire.Dead)
	do(s, 51, set("a", "v"))
	require.Equal(t, kv.OK, do(s, 200, get("a")).Status)
	require.Equal(t, 1, s.Stats().Items)
}

// A mirror that gets a snapshot while the table grows and changes has in the end what the
// table has.
func TestSnapshotWhileChanging(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	freed := 0
	s := newStore(t, 32, Config{FreeTable: func([]byte) { freed++ }})
	m := mirror.New(mirror.Config{})
	change := func() {
		key := fmt.Sprint("k", rng.IntN(2000))
		if rng.IntN(5) == 0 {
			do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte(key)}})
		} else {
			do(s, 0, set(key, "some value"))
		}
		if rng.IntN(3000) == 0 {
			do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
		}
	}
	for range 500 {
		change()
	}
	b := s.Begin(0)
	m.Begin(&b)
	next, pos := b.Seq+1, uint64(0)
	var d wire.Deltas
	var c wire.Chunk
	for !c.Last {
		for range 40 {
			change()
		}
		require.True(t, s.Deltas(0, next, 1000, &d))
		require.NoError(t, m.Deltas(&d))
		next += uint64(len(d.List))
		pos = s.Chunk(0, pos, 30, &c)
		require.NoError(t, m.Chunk(&c))
	}
	require.True(t, m.Whole())
	for s.Tick(0, 1000) {
	}
	require.Equal(t, s.table.Len(), m.Len())
	for i := range 2000 {
		f := s.cfg.Secret.Fingerprint(fmt.Append(nil, "k", i))
		want := s.table.Candidates(f, nil)
		for i := range want {
			want[i].Item = 0
		}
		require.ElementsMatch(t, want, m.Lookup(f, nil))
	}
	s.Tick(0, 0)
	require.NotZero(t, freed, "arrays that the table has left are given back")
	require.False(t, s.Deltas(0, 0, 1, &d))
	require.False(t, s.Deltas(0, s.log.last+2, 1, &d))
	small := newStore(t, 4, Config{Log: 4})
	for range 6 {
		do(small, 0, set("k", "v"))
	}
	require.False(t, small.Deltas(0, 2, 9, &d), "too far behind")
	require.True(t, small.Deltas(0, 3, 9, &d))
	require.Len(t, d.List, 4)
}

// Keys that are asked for often are found, by READs that were told of and by calls.
func TestHotKeys(t *testing.T) {
	s := newStore(t, 4, Config{})
	for _, k := range []string{"read", "called", "cold", "gone"} {
		require.Equal(t, kv.OK, do(s, 0, set(k, "value")).Status)
	}
	require.Empty(t, s.Hot(9))
	read, gone := do(s, 0, get("read")).Entry, do(s, 0, get("gone")).Entry
	for range 100 {
		s.Reported(&wire.Report{Epoch: 7, Accesses: []wire.Access{
			{Fingerprint: read.Fingerprint, Version: read.Version}, {Fingerprint: gone.Fingerprint, Version: gone.Version},
		}})
	}
	for range 1600 {
		do(s, 0, get("called"))
	}
	do(s, 0, get("cold"))
	require.Equal(t, kv.OK, do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("gone")}}).Status)
	keys := s.Hot(9)
	require.Len(t, keys, 2)
	for _, k := range keys {
		require.Contains(t, []string{"read", "called"}, string(k.Key))
		require.InDelta(t, 0.333, k.Share, 0.07, "a call counts as much as a READ")
	}
}

// A part of a snapshot is no more work than it may have entries: the server does nothing else
// meanwhile, and most of the table may be empty.
func TestChunkOfAnEmptyTable(t *testing.T) {
	s := newStore(t, 4, Config{Depth: 10})
	do(s, 1, set("k", "v"))
	var c wire.Chunk
	parts, entries := 0, 0
	for pos := uint64(0); parts == 0 || pos != 0; parts++ {
		require.False(t, c.Last)
		pos = s.Chunk(1, pos, 64, &c)
		entries += len(c.Entries)
	}
	require.True(t, c.Last)
	require.Equal(t, 1<<10/64, parts)
	require.Equal(t, 1, entries)
}
