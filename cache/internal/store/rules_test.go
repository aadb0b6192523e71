package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A server's life has a number, and requests to another life are refused.
func TestEpochs(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "epoch 0")
	_, err = New(Config{Epoch: 7, AllocTable: func(int) ([]byte, wire.Where) { return nil, wire.Where{} }})
	require.Error(t, err, "no memory for the table")
	s := newStore(t, 4, Config{})
	for epoch, want := range map[uint32]kv.Status{0: kv.OK, 7: kv.OK, 8: wire.WrongEpoch} {
		q := set("k", "v")
		q.Epoch = epoch
		require.Equal(t, want, do(s, 0, q).Status, epoch)
	}
	q := get("k")
	require.Equal(t, kv.OK, s.DoLocal(0, &q.Request).Status)
}

// A client that has passed its mark gets a new one, and half a lease from then on.
func TestHeardSetsAMark(t *testing.T) {
	s := newStore(t, 4, Config{Lease: 5000})
	s.Attach(1, 0)
	do(s, 0, set("k", "v"))
	s.advance(1000)
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7}))
	require.Empty(t, s.Late(3499, nil))
	require.Equal(t, []uint64{1}, s.Late(3500, nil))
}

// A snapshot in the smallest parts comes to its end.
func TestSmallestChunks(t *testing.T) {
	s := newStore(t, 4, Config{Depth: 3})
	do(s, 0, set("k", "v"))
	var c wire.Chunk
	entries := 0
	for pos, parts := uint64(0), 0; !c.Last; parts++ {
		require.Less(t, parts, 100)
		pos = s.Chunk(0, pos, 1, &c)
		entries += len(c.Entries)
	}
	require.Equal(t, 1, entries)
	parts := 0
	for pos := uint64(0); ; {
		parts++
		if pos = s.Chunk(0, pos, 1, &c); pos == 0 {
			break
		}
	}
	require.Equal(t, 1<<3, parts, "a bucket each")
}

// The age of a record that is evicted is the one that is kept and shown.
func TestAgeOfTheEvicted(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	s.advance(700)
	id, _, ok := s.lookup(s.cfg.Secret.Fingerprint([]byte("k")), []byte("k"))
	require.True(t, ok)
	s.evict(id)
	ages := s.EvictedAges()
	require.Equal(t, uint64(700), s.Stats().EvictedIdle)
	require.Equal(t, uint64(1), ages.Total())
	require.Equal(t, uint64(700), ages.Sum)
	require.Equal(t, []kv.Range{{ID: 7, Events: kv.Events{Sets: 1, Evicted: 1, EvictedUnfetched: 1, EvictedIdle: 700}}}, s.Ranges())
}

// What shards drop at a time is behind a flush that was to come then.
func TestDropLater(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpFlush, Want: kv.WantIfLater, Expiry: 10}})
	s.Drop(10, &place.Set{}, 0, 100)
	require.Equal(t, uint64(1), s.Stats().Flushes)
}

// A list looks at so many items and no more, and says where to go on.
func TestListLooksAtSomeItems(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.items = make([]item, listSteps+1)
	q := kv.Request{Op: wire.OpList}
	a := s.DoLocal(0, &q)
	require.Equal(t, uint64(listSteps), a.Number)
	q.Initial = a.Number
	require.Zero(t, s.DoLocal(0, &q).Number)
}

// Records of keys with one fingerprint are told apart by their keys.
func TestKeysOfOneFingerprint(t *testing.T) {
	s := newStore(t, 4, Config{})
	_, status := s.write(noItem, &wire.Record{Key: []byte("other"), Value: []byte("v"), Fingerprint: s.cfg.Secret.Fingerprint([]byte("k"))})
	require.Equal(t, kv.OK, status)
	require.Equal(t, kv.NotFound, do(s, 0, get("k")).Status)
	do(s, 0, set("k", "mine"))
	require.Equal(t, "mine", string(do(s, 0, get("k")).Value))
	require.Equal(t, 2, s.Stats().Items)
}

// Without a lease in the configuration it is five seconds.
func TestLeaseByDefault(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.Attach(1, 0)
	do(s, 0, set("k", "v"))
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7}))
	require.Empty(t, s.Late(2499, nil))
	require.Equal(t, []uint64{1}, s.Late(2500, nil))
}

// A new record that finds no memory leaves nothing behind.
func TestNoMemoryForANewRecord(t *testing.T) {
	s := newStore(t, 1, Config{})
	s.Attach(1, 0)
	status, i := kv.OK, 0
	for ; status == kv.OK; i++ {
		status = do(s, 0, set(fmt.Sprint(i), string(make([]byte, 1000)))).Status
	}
	require.Equal(t, kv.NoMemory, status)
	require.Equal(t, len(s.items), s.Stats().Items+len(s.free))
	require.Equal(t, s.Stats().NoMemory, uint64(1))
	for range i { // all of the queue are records
		id, ok := s.queue.Evict()
		if !ok {
			break
		}
		require.NotZero(t, s.items[id].version)
	}
}

// A table that doubles comes to the end of it by ticks alone.
func TestTicksGrow(t *testing.T) {
	s := newStore(t, 4, Config{Depth: 4})
	s.table.Grow()
	for range 100 {
		s.Tick(0, 1)
	}
	require.NotZero(t, s.TableMoved())
}

// A READ that a client reports is an access like a get.
func TestReportIsAnAccess(t *testing.T) {
	s := newStore(t, 4, Config{})
	e := do(s, 0, set("k", "v")).Entry
	s.advance(100)
	s.Reported(&wire.Report{Epoch: 7, Hits: 1, Accesses: []wire.Access{{Fingerprint: e.Fingerprint, Version: e.Version}}})
	a := do(s, 150, get("k"))
	require.Equal(t, uint64(50), a.Idle)
	require.NotZero(t, a.Bits&kv.ReplyFetched)
}

// Keys whose records a flush has removed are not hot.
func TestFlushedAreNotHot(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	for range 200 {
		do(s, 0, get("k"))
	}
	require.NotEmpty(t, s.Hot(1))
	s.flush()
	require.Empty(t, s.Hot(1))
}
