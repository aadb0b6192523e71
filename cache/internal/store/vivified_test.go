package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

// A record that a get has made is none for requests with WantStored, until something is stored. One with its number
// finds it.
func TestVivifiedRecordIsPassed(t *testing.T) {
	key := []byte("key")
	s := newStore(t, 4, Config{})
	do := func(op kv.Op, want uint32, q kv.Request) kv.Reply {
		q.Op, q.Want, q.Key = op, want, key
		return s.DoLocal(1, &q).Reply
	}
	made := do(kv.OpGet, kv.WantVivify|kv.WantStored, kv.Request{Vivify: 1000})
	require.Equal(t, kv.OK, made.Status)
	require.EqualValues(t, kv.ReplyWon|kv.ReplyCreated, made.Bits)
	require.Equal(t, uint64(1001), made.Expiry)
	for _, q := range []kv.Request{
		{Op: kv.OpGet}, {Op: kv.OpGet, Want: kv.WantVivify}, {Op: kv.OpGet, Want: kv.WantTouch}, {Op: kv.OpArith}, {Op: kv.OpDelete, Want: kv.WantCompare, CAS: made.CAS + 1},
		{Op: kv.OpSet, Want: kv.WantCompare, CAS: made.CAS + 1}, {Op: kv.OpAppend}, {Op: kv.OpPrepend}, {Op: kv.OpReplace},
	} {
		a := do(q.Op, q.Want|kv.WantStored, q)
		if want := kv.NotFound; q.Op >= kv.OpReplace && q.Op <= kv.OpPrepend {
			require.Equal(t, kv.NotStored, a.Status, q)
		} else {
			require.Equal(t, want, a.Status, q)
		}
		require.EqualValues(t, kv.ReplyVivified, a.Bits, q)
		require.Equal(t, made.CAS, a.CAS, q)
	}
	a := do(kv.OpGet, 0, kv.Request{})
	require.Equal(t, kv.OK, a.Status, "to others it is a record")
	require.EqualValues(t, kv.ReplySent|kv.ReplyFetched, a.Bits)
	require.Equal(t, kv.NotStored, do(kv.OpAdd, 0, kv.Request{}).Status)

	stored := do(kv.OpSet, kv.WantStored|kv.WantCompare, kv.Request{CAS: made.CAS, Value: []byte("value")})
	require.Equal(t, kv.OK, stored.Status)
	require.Zero(t, stored.Bits)
	a = do(kv.OpGet, kv.WantStored, kv.Request{})
	require.Equal(t, "value", string(a.Value))
	require.EqualValues(t, kv.ReplyFetched, do(kv.OpGet, kv.WantStored, kv.Request{}).Bits)

	// One is stored in its place, or removed.
	require.Equal(t, kv.OK, do(kv.OpDelete, kv.WantStored, kv.Request{}).Status)
	do(kv.OpGet, kv.WantVivify, kv.Request{})
	a = do(kv.OpAdd, kv.WantStored, kv.Request{Value: []byte("added")})
	require.Equal(t, kv.OK, a.Status)
	require.Zero(t, a.Bits)
	require.EqualValues(t, 1, s.Stats().Items)
	require.Equal(t, kv.OK, do(kv.OpDelete, kv.WantStored, kv.Request{}).Status)
	do(kv.OpGet, kv.WantVivify, kv.Request{})
	require.Equal(t, kv.NotFound, do(kv.OpDelete, kv.WantStored, kv.Request{}).Status)
	require.Zero(t, s.Stats().Items)
	made = do(kv.OpGet, kv.WantVivify, kv.Request{})
	require.Equal(t, kv.OK, do(kv.OpDelete, kv.WantStored|kv.WantCompare, kv.Request{CAS: made.CAS}).Status)
	require.Zero(t, s.Stats().Items)
}
