package store

import (
	"math/bits"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Whatever becomes of records, what is counted by size is what there is.
func TestSizes(t *testing.T) {
	s := newStore(t, 16, Config{})
	r := rand.New(rand.NewPCG(1, 2))
	check := func() {
		t.Helper()
		var want Sizes
		for _, it := range s.items {
			if it.version != 0 {
				z := &want[bits.Len(uint(it.place.Length()-1))]
				z.Records++
				z.Bytes += s.arena.SlotSize(it.place.Length())
			}
		}
		require.Equal(t, want, s.Sizes())
		bytes := 0
		for _, z := range s.Sizes() {
			bytes += z.Bytes
		}
		require.Equal(t, s.Stats().Arena.Live, bytes)
	}
	for i := range uint64(5000) {
		k := strconv.Itoa(r.IntN(2000))
		q := set(k, string(make([]byte, r.IntN(1<<r.IntN(16)))))
		switch r.IntN(8) {
		case 0:
			q = wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte(k)}}
		case 1:
			q = wire.Request{Request: kv.Request{Op: kv.OpAppend, Key: []byte(k), Value: []byte("more")}}
		case 2:
			q.Expiry = 10
		}
		if do(s, i, q); i%500 == 0 {
			check()
		}
		if i == 2500 {
			do(s, i, wire.Request{Request: kv.Request{Op: kv.OpFlush}})
		}
	}
	require.NotZero(t, s.Stats().Evicted)
	require.NotZero(t, s.Stats().Moved)
	require.NotZero(t, s.Stats().Expired)
	check()
	ages := s.EvictedAges()
	require.Equal(t, s.Stats().Evicted, ages.Total())
}

// A record of 1<<i bytes is in entry i, and a longer one in the next.
func TestSizeRanges(t *testing.T) {
	s := newStore(t, 4, Config{})
	n := 1024 - wire.RecordSize(1, 0)
	do(s, 1, set("k", string(make([]byte, n))))
	require.Equal(t, Size{1, 1024}, s.Sizes()[10])
	do(s, 1, set("k", string(make([]byte, n+1))))
	require.Zero(t, s.Sizes()[10])
	require.Equal(t, Size{1, 1024 + wire.SlotUnit}, s.Sizes()[11])
}

// The age of an evicted record is the time since its last access.
func TestEvictedAges(t *testing.T) {
	s := newStore(t, 4, Config{})
	for i := 0; s.Stats().Evicted == 0; i++ {
		do(s, 5000, set(strconv.Itoa(i), string(make([]byte, 1000))))
	}
	before := s.EvictedAges()
	require.Equal(t, before.Total(), before.N[0], "at once")
	for n, i := s.Stats().Evicted, 0; s.Stats().Evicted == n; i++ {
		do(s, 5000+1000, set("new"+strconv.Itoa(i), string(make([]byte, 1000))))
	}
	after := s.EvictedAges()
	require.Equal(t, before.N[10]+1, after.N[10]+after.N[0]-before.N[0])
}
