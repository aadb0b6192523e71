package store

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

// A tombstone leads to the record that came in its place, and from one to the next to that which is alive.
// What was removed leads nowhere.
func TestTombstoneLeads(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.Attach(1, 0) // nothing leaves quarantine
	first := do(s, 0, set("k", "one")).Entry
	for _, v := range []string{"two", "three", "four"} {
		do(s, 0, set("k", v))
	}
	e := first
	for _, v := range []string{"one", "two", "three"} {
		_, err := wire.ReadRecord(s.arena.Bytes(e.Place))
		require.ErrorIs(t, err, wire.Dead, v)
		next, ok := wire.Forwarded(s.arena.Bytes(e.Place), &e)
		require.True(t, ok, v)
		e = next
	}
	r, err := wire.Validate(s.arena.Bytes(e.Place), &e, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "four", string(r.Value))

	do(s, 0, wire.Request{Op: wire.OpDelete, Key: []byte("k")})
	do(s, 0, set("k", "another"))
	_, ok := wire.Forwarded(s.arena.Bytes(e.Place), &e)
	require.False(t, ok)
}

// As long as a client may READ a tombstone, the place to which that leads is not used again: it has the
// record that the tombstone names, alive or as a tombstone. Beside changes, deletions and evictions.
func TestTombstonesLeadToNoOtherRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	s := newStore(t, 6, Config{})
	s.Attach(1, 0)
	type old struct {
		seq uint64 // the delta that made it one
		e   wire.Entry
	}
	var tombstones []old
	last, quiet, followed := map[string]wire.Entry{}, uint64(0), 0
	for now := range uint64(6000) {
		key := "key" + strconv.Itoa(rng.IntN(40))
		switch rng.IntN(8) {
		case 0:
			do(s, now, wire.Request{Op: wire.OpDelete, Key: []byte(key)})
			delete(last, key)
		case 1:
			quiet = max(quiet, s.log.last-min(s.log.last, rng.Uint64N(30)))
			require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: s.log.last, Quiet: quiet}))
		default:
			a := do(s, now, set(key, string(make([]byte, rng.IntN(6000)))))
			if a.Status != wire.OK {
				require.Equal(t, wire.NoMemory, a.Status)
				continue
			}
			if was, ok := last[key]; ok {
				tombstones = append(tombstones, old{s.log.last, was})
			}
			last[key] = a.Entry
		}
		kept := tombstones[:0]
		for _, o := range tombstones {
			if o.seq <= quiet {
				continue // the client READs it no more
			}
			kept = append(kept, o)
			next, ok := wire.Forwarded(s.arena.Bytes(o.e.Place), &o.e)
			if !ok { // it was evicted before
				continue
			}
			followed++
			require.Equal(t, next.Version, wire.PeekRecord(s.arena.Bytes(next.Place)).Version)
		}
		tombstones = kept
	}
	require.Greater(t, followed, 1000)
	require.NotZero(t, s.Stats().Evicted)
}
