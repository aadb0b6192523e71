package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A server's life has a number, and requests to another life are refused.
func TestEpochs(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "epoch 0")
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
}

// A get says for how long the record had not been accessed.
func TestIdle(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "v"))
	require.Equal(t, uint64(700), do(s, 700, get("k")).Idle)
}

// What is marked stale keeps its expiry unless another one is asked for.
func TestStaleExpiry(t *testing.T) {
	for want, expiry := range map[uint32]uint64{kv.WantStale: 100, kv.WantStale | kv.WantTouch: 500} {
		s := newStore(t, 4, Config{})
		q := set("k", "v")
		q.Expiry = 100
		do(s, 0, q)
		d := wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k"), Want: want, Expiry: 500}}
		require.Equal(t, expiry, do(s, 0, d).Expiry)
	}
}

// A number that becomes longer is a new record, which has not been fetched.
func TestLongerNumberIsNotFetched(t *testing.T) {
	s := newStore(t, 4, Config{})
	do(s, 0, set("k", "9"))
	do(s, 0, get("k"))
	require.Equal(t, uint64(10), do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpArith, Key: []byte("k"), Delta: 1}}).Number)
	a := do(s, 0, get("k"))
	require.Equal(t, "10", string(a.Value))
	require.Zero(t, a.Bits&kv.ReplyFetched)
}
