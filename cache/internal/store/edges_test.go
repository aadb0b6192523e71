package store

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Time does not go back, whatever a driver says: what has expired stays so.
func TestTimeDoesNotGoBack(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Expiry = 100
	do(s, 1000, q)
	require.Equal(t, kv.OK, do(s, 1099, get("k")).Status)
	do(s, 1100, set("other", ""))
	a := do(s, 500, get("k"))
	require.Equal(t, []any{kv.NotFound, uint64(1100)}, []any{a.Status, a.Clock})
}

// What is over already is, also in a server's first moment.
func TestExpiredFromTheBeginning(t *testing.T) {
	s := newStore(t, 4, Config{})
	q := set("k", "v")
	q.Expiry = -1
	require.Equal(t, kv.OK, do(s, 0, q).Status)
	require.Equal(t, kv.NotFound, do(s, 1, get("k")).Status)
}

// What a flush has freed is in quarantine until the clients have left the flush itself behind.
func TestFlushedIsInQuarantine(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.Attach(1, 0)
	for i := range 10 {
		do(s, 0, set(strconv.Itoa(i), "v"))
	}
	before := s.log.last
	do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
	s.Tick(0, 100)
	heard := func(quiet uint64) int {
		require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: quiet, Quiet: quiet}))
		return s.Stats().Arena.Quarantine
	}
	require.NotZero(t, heard(before))
	require.Zero(t, heard(before+1))
}

// A client that says something, and not that it goes on, is late all the same.
func TestTalkIsNoProgress(t *testing.T) {
	s := newStore(t, 4, Config{Lease: 100})
	s.Attach(1, 0)
	do(s, 0, set("k", "v"))
	require.Empty(t, s.Late(1, nil), "it has to pass a mark from now on")
	for now := uint64(10); now < 50; now += 10 {
		do(s, now, set("k", "v"))
		require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7}))
		require.Empty(t, s.Late(now, nil))
	}
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7}))
	require.Equal(t, []uint64{1}, s.Late(51, nil))
}

// A record is added to if it is the one that was read.
func TestAddingCompares(t *testing.T) {
	s := newStore(t, 4, Config{})
	cas := do(s, 0, set("k", "b")).CAS
	for _, op := range []kv.Op{kv.OpAppend, kv.OpPrepend} {
		q := wire.Request{Request: kv.Request{Op: op, Key: []byte("k"), Value: []byte("a"), Want: kv.WantCompare, CAS: cas + 1}}
		require.Equal(t, kv.Exists, do(s, 0, q).Status)
		q.CAS = cas
		a := do(s, 0, q)
		require.Equal(t, kv.OK, a.Status)
		q.CAS = 0
		a = do(s, 0, q)
		require.Equal(t, kv.OK, a.Status, "0 is no number of a record")
		cas = a.CAS
	}
	require.Equal(t, "aabaa", string(do(s, 0, get("k")).Value))
}

// A late value replaces one that is newer, and is marked; one that claims to be newer than the record there is none.
func TestLateValuesAreOlder(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "one"))
	cas := do(s, 0, set("k", "two")).CAS
	q := set("k", "late")
	q.Want, q.CAS = kv.WantCompare|kv.WantStale, cas+1
	require.Equal(t, kv.Exists, do(s, 0, q).Status)
	q.CAS = 0
	require.Equal(t, kv.Exists, do(s, 0, q).Status)
	q.CAS = cas - 1
	require.Equal(t, kv.OK, do(s, 0, q).Status)
	a := do(s, 0, get("k"))
	require.Equal(t, "late", string(a.Value))
	require.NotZero(t, a.Bits&kv.ReplyStale)
}

// A record that takes nearly all of the memory is not evicted by itself.
func TestOneLargeRecord(t *testing.T) {
	s := newStore(t, 1, Config{})
	v := string(make([]byte, simPage-200))
	for range 3 {
		require.Equal(t, kv.OK, do(s, 0, set("k", v)).Status)
		require.Equal(t, kv.OK, do(s, 0, get("k")).Status)
		require.Equal(t, kv.OK, do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k")}}).Status)
	}
	do(s, 0, set("k", v))
	require.Equal(t, kv.OK, do(s, 0, set("small", "v")).Status)
	require.Equal(t, kv.NotFound, do(s, 0, get("k")).Status)
	require.Equal(t, kv.OK, do(s, 0, get("small")).Status)
}

// The array that a table has left is given back when all clients have been told where the buckets are, and not before.
func TestOldTableIsInQuarantine(t *testing.T) {
	freed := 0
	s := newStore(t, 16, Config{FreeTable: func([]byte) { freed++ }})
	s.Attach(1, 0)
	for i := 0; len(s.retired) == 0; i++ {
		do(s, 0, set(strconv.Itoa(i), "v"))
	}
	heard := func(quiet uint64) int {
		require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: quiet, Quiet: quiet}))
		return freed
	}
	moved := s.retired[0].seq
	require.Zero(t, heard(moved-1))
	require.Equal(t, 1, heard(moved))
}

// Each mark has one winner, and a value that grows by arithmetic is a new one, without marks.
func TestMarks(t *testing.T) {
	s := newStore(t, 4, Config{})
	stale := wire.Request{Request: kv.Request{Op: kv.OpDelete, Want: kv.WantStale, Key: []byte("k")}}
	bits := func() uint16 {
		q := get("k")
		q.Want = kv.WantWin
		return do(s, 0, q).Bits
	}
	do(s, 0, set("k", "8"))
	for range 2 {
		require.Equal(t, kv.OK, do(s, 0, stale).Status)
		require.NotZero(t, bits()&kv.ReplyWon)
		require.Zero(t, bits()&kv.ReplyWon)
	}
	for _, still := range []bool{true, false} {
		require.Equal(t, kv.OK, do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpArith, Key: []byte("k"), Delta: 1}}).Status)
		require.Equal(t, still, bits()&kv.ReplyStale != 0)
	}
}

// An Add that finds a record is an access to it.
func TestAddIsAnAccess(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	q := set("k", "w")
	q.Op = kv.OpAdd
	require.Equal(t, kv.NotStored, do(s, 1000, q).Status)
	require.Zero(t, do(s, 1000, get("k")).Idle)
}

func TestNumbers(t *testing.T) {
	for text, n := range map[string]uint64{"0": 0, "007": 7, " 12 x": 12, "+5": 5, "18446744073709551615": 1<<64 - 1, "-18446744073709551615": 1, "3\t": 3} {
		got, ok := Number([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, n, got, text)
	}
	for _, text := range []string{"", " ", "-1", "x", "1x", "+", "18446744073709551616", "1.5"} {
		_, ok := Number([]byte(text))
		require.False(t, ok, text)
	}
}

// What has no time left is not restored, also in a server's first moment, and a key has one record, whatever a
// snapshot says.
func TestRestoredOnce(t *testing.T) {
	s := newStore(t, 4, Config{})
	it := snapshot.Item{Key: []byte("k"), Value: []byte("v"), Left: 5}
	require.Equal(t, kv.NotFound, s.Restore(0, &it, 5))
	require.Equal(t, kv.NotFound, do(s, 0, get("k")).Status)
	for _, v := range []string{"one", "two"} {
		it = snapshot.Item{Key: []byte("k"), Value: []byte(v)}
		require.Equal(t, kv.OK, s.Restore(0, &it, 5))
	}
	require.Equal(t, 1, s.Stats().Items)
	require.Equal(t, "two", string(do(s, 0, get("k")).Value))
}

// A record that is moved stays what it is to clients, but for its place: CAS number, expiry, marks, and when it was
// accessed. It leaves its old place to quarantine, and tombstones lead to the new one.
func TestMove(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.Attach(1, 0)
	q := set("k", "value")
	q.Flags, q.Expiry = 5, 1000
	do(s, 10, q)
	do(s, 10, wire.Request{Request: kv.Request{Op: kv.OpDelete, Want: kv.WantStale, Key: []byte("k")}})
	look := get("k")
	look.Want = kv.WantNoBump
	for _, fetched := range []bool{false, true} {
		if fetched {
			do(s, 15, get("k"))
		}
		before := do(s, 20, look)
		s.move(before.Entry.Item)
		after := do(s, 20, look)
		require.NotEqual(t, before.Entry.Place, after.Entry.Place)
		require.Greater(t, after.Entry.Version, before.Entry.Version)
		next, ok := wire.Forwarded(s.arena.Bytes(before.Entry.Place), &before.Entry)
		require.True(t, ok)
		require.Equal(t, after.Entry.Place, next.Place)
		before.Entry, before.Seq = after.Entry, after.Seq
		require.Equal(t, before, after)
		require.Equal(t, fetched, after.Bits&kv.ReplyFetched != 0)
	}
	require.NotZero(t, s.Stats().Arena.Quarantine)
	require.EqualValues(t, 2, s.Stats().Moved)
}

// A long record has room among short ones, which move: they are not lost, and those that clients may READ stay
// until quarantine is over.
func TestLongRecordAmongShortOnes(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		longRecordAmongShortOnes(t, prepared)
	}
}

// longRecordAmongShortOnes has records as long been stored of late, or not: then the first one has to wait.
func longRecordAmongShortOnes(t *testing.T, prepared bool) {
	s := newStore(t, 16, Config{})
	n := 0
	for s.Stats().Arena.Live < s.limit()-1000 {
		require.Equal(t, kv.OK, do(s, 0, set(strconv.Itoa(n), string(make([]byte, 400)))).Status)
		n++
	}
	for ok := true; ok; { // what is left is not free
		_, ok = s.arena.Alloc(wire.SlotUnit)
	}
	for i := 0; i < n; i += 5 {
		do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte(strconv.Itoa(i))}})
	}
	before := s.Stats()
	s.Attach(1, 0)
	long := set("long", string(make([]byte, simPage-200)))
	if prepared {
		s.longest = wire.RecordSize(len(long.Key), len(long.Value))
		require.Equal(t, kv.OK, do(s, 0, set("1", "")).Status)
	} else {
		require.Equal(t, kv.NoMemory, do(s, 0, long).Status)
	}
	require.NotZero(t, s.Stats().Moved)
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: s.log.last, Quiet: s.log.last}))
	require.Equal(t, kv.OK, do(s, 0, long).Status)
	require.Equal(t, before.Items+1, s.Stats().Items, "none is evicted")
	require.Equal(t, before.Evicted, s.Stats().Evicted)
}

// A map that grows has room for all: no record goes since two buckets are full before they have been split.
func TestGrowingEvictsNothing(t *testing.T) {
	for seed := range uint64(40) {
		const records = 7000
		s := newStore(t, 40, Config{Depth: 8, Secret: wire.Secret{seed, 1}})
		for i := range records {
			require.Equal(t, kv.OK, do(s, 1, set(strconv.Itoa(i), "value")).Status)
		}
		require.Equal(t, records, s.Stats().Items, "secret %d", seed)
	}
}
