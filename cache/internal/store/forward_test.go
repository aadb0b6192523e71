package store

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

// A tombstone leads to the record that is alive, also when that has changed several times since. One of long
// ago leads to another one, from which it goes on. What was removed leads nowhere.
func TestTombstoneLeads(t *testing.T) {
	s := newStore(t, 4, Config{})
	s.Attach(1, 0) // nothing leaves quarantine
	const changes = maxLed + 3
	var all []wire.Entry
	for i := range changes {
		all = append(all, do(s, 0, set("k", strconv.Itoa(i))).Entry)
	}
	last := all[changes-1]
	for i := range all[:changes-1] {
		e := all[i]
		steps := 0
		for e.Version != last.Version {
			_, err := wire.ReadRecord(s.arena.Bytes(e.Place))
			require.ErrorIs(t, err, wire.Dead, i)
			next, ok := wire.Forwarded(s.arena.Bytes(e.Place), &e)
			require.True(t, ok, i)
			e = next
			steps++
		}
		if i < changes-1-(maxLed+1) {
			require.Equal(t, 2, steps, i)
		} else {
			require.Equal(t, 1, steps, i)
		}
	}
	r, err := wire.Validate(s.arena.Bytes(last.Place), &last, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(changes-1), string(r.Value))

	do(s, 0, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("k")}})
	another := do(s, 0, set("k", "another")).Entry
	for range changes {
		do(s, 0, set("k", "another"))
	}
	_, ok := wire.Forwarded(s.arena.Bytes(last.Place), &last)
	require.False(t, ok)
	next, ok := wire.Forwarded(s.arena.Bytes(another.Place), &another)
	require.True(t, ok)
	require.Greater(t, next.Version, another.Version)
}

// Nothing is written to a slot that has left quarantine: it may be another record's. Nor is what the trail has
// forgotten taken for what came in its place there.
func TestTrailIsOfTombstonesAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	s := newStore(t, 3, Config{})
	s.Attach(1, 0)
	alive := map[string]wire.Entry{}
	check := func() {
		for key, e := range alive {
			if s.items[e.Item].version == e.Version { // it was not evicted
				_, err := wire.Validate(s.arena.Bytes(e.Place), &e, []byte(key))
				require.NoError(t, err)
			}
		}
	}
	change := func(key string, bytes int) {
		if a := do(s, 0, set(key, string(make([]byte, bytes)))); a.Status == kv.OK {
			alive[key] = a.Entry
		}
	}
	for range 4000 {
		change("key"+strconv.Itoa(rng.IntN(12)), rng.IntN(3000))
		if rng.IntN(3) == 0 {
			quiet := s.log.last - min(s.log.last, rng.Uint64N(4))
			if quiet >= s.clients.all[1].quiet {
				require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: s.log.last, Quiet: quiet}))
			}
		}
		check()
	}

	s = newStore(t, 8, Config{})
	s.Attach(1, 0)
	clear(alive)
	rare := do(s, 0, set("rare", "v")).Entry
	change("rare", 1)
	for range trailLength + 1 { // the last tombstone of these has the place of the first that rare had
		change("often", 1)
	}
	change("rare", 1)
	check()
	next, ok := wire.Forwarded(s.arena.Bytes(rare.Place), &rare)
	require.True(t, ok)
	require.Equal(t, "rare", string(wire.PeekRecord(s.arena.Bytes(next.Place)).Key), "it leads to the next one, which leads on")
	for _, e := range s.table.Candidates(s.cfg.Secret.Fingerprint([]byte("often")), nil) {
		before, ok := s.trail.at(s.items[e.Item].trail)
		require.True(t, ok)
		was := wire.PeekRecord(s.arena.Bytes(before.place))
		tombstone := wire.Entry{Fingerprint: e.Fingerprint, Version: was.Version, Place: before.place, Epoch: 7}
		next, ok := wire.Forwarded(s.arena.Bytes(before.place), &tombstone)
		require.True(t, ok)
		require.Equal(t, e.Version, next.Version)
	}
}

// As long as a client may READ a tombstone, the place to which that leads is not used again: it has the
// record that the tombstone names, alive or as a tombstone. Beside changes, deletions and evictions.
func TestTombstonesLeadToNoOtherRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	s := newStore(t, 2, Config{})
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
			do(s, now, wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte(key)}})
			delete(last, key)
		case 1:
			quiet = max(quiet, s.log.last-min(s.log.last, rng.Uint64N(30)))
			require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: s.log.last, Quiet: quiet}))
		default:
			a := do(s, now, set(key, string(make([]byte, rng.IntN(6000)))))
			if a.Status != kv.OK {
				require.Equal(t, kv.NoMemory, a.Status)
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
