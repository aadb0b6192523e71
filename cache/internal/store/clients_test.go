package store

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

// A client that is behind is cut off before a lease is over, and not believed what cannot be.
func TestStoreLease(t *testing.T) {
	s := newStore(t, 4, Config{Lease: 100})
	s.Attach(1, 0)
	do(s, 0, set("k", "v"))
	require.Empty(t, s.Late(10, nil))
	freed := uint64(11)
	do(s, freed, set("k", "w"))
	require.Empty(t, s.Late(58, nil))
	now := uint64(59)
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Quiet: 1}), "as late as can be, and not far enough")
	for len(s.Late(now, nil)) == 0 {
		require.NotZero(t, s.Stats().Arena.Quarantine)
		now++
	}
	require.LessOrEqual(t, now-freed, uint64(100))
	require.Empty(t, s.Late(now+1, nil), "it is named once")
	require.Equal(t, uint64(1), s.Stats().Cut)
	s.Detach(1)
	require.Zero(t, s.Stats().Arena.Quarantine)

	s.Attach(2, now)
	ok := wire.Horizon{Epoch: 7, Quiet: s.log.last}
	require.NoError(t, s.Heard(2, ok))
	require.Error(t, s.Heard(2, wire.Horizon{Epoch: 7, Quiet: s.log.last + 1}))
	require.Error(t, s.Heard(2, wire.Horizon{Epoch: 7, Quiet: s.log.last - 1}))
	require.Error(t, s.Heard(2, wire.Horizon{Epoch: 6, Quiet: s.log.last}))
	require.Error(t, s.Heard(3, ok))
	require.Empty(t, s.Late(now+1000, nil), "who is up to date is never late")
}

// A server that was stopped does not blame its clients, and frees nothing for it.
func TestStorePardons(t *testing.T) {
	s := newStore(t, 4, Config{Lease: 100})
	s.Attach(1, 0)
	do(s, 0, set("k", "v"))
	do(s, 1, set("k", "w"))
	require.Empty(t, s.Late(10, nil))
	s.Pardon(5000)
	require.Empty(t, s.Late(5040, nil))
	require.NotZero(t, s.Stats().Arena.Quarantine)
	require.NotEmpty(t, s.Late(5050, nil))
	require.NotZero(t, s.Stats().Arena.Quarantine, "until it is detached")
}

// Reports keep what is READ: the server does not see it otherwise.
func TestStoreReports(t *testing.T) {
	s := newStore(t, 8, Config{})
	e := do(s, 0, set("hot", string(make([]byte, 1000)))).Entry
	for i := range 1000 {
		s.Reported(&wire.Report{Epoch: 7, Hits: 20, Accesses: []wire.Access{{Fingerprint: e.Fingerprint, Version: e.Version}, {Fingerprint: e.Fingerprint, Version: 99999}}})
		do(s, 0, set(fmt.Sprint("k", i), string(make([]byte, 1000))))
	}
	require.Equal(t, uint64(1000), s.Stats().Reports)
	require.Equal(t, kv.OK, do(s, 0, get("hot")).Status)
	s.Reported(&wire.Report{Epoch: 6, Hits: 20, Accesses: []wire.Access{{Fingerprint: e.Fingerprint, Version: e.Version}}})
	require.Equal(t, uint64(1000), s.Stats().Reports)
	require.Equal(t, uint64(20_000), s.Stats().Reads)
}

// A client that has all deltas gets none, and no snapshot either; one that lacks some gets as many as
// it wants. Each message has the time.
func TestDeltasAndTime(t *testing.T) {
	s := newStore(t, 4, Config{})
	for i := range 5 {
		do(s, 1, set(strconv.Itoa(i), "v"))
	}
	var d wire.Deltas
	require.True(t, s.Deltas(7, s.Seq()+1, 10, &d))
	require.Empty(t, d.List)
	require.Equal(t, uint64(7), d.Clock)
	require.False(t, s.Deltas(7, s.Seq()+2, 10, &d), "what is not yet")
	require.True(t, s.Deltas(8, 2, 3, &d))
	require.Len(t, d.List, 3)
	require.Equal(t, []uint64{2, 8}, []uint64{d.First, d.Clock})
	require.Equal(t, uint64(9), s.Begin(9).Clock)
	var c wire.Chunk
	s.Chunk(10, 0, 10, &c)
	require.Equal(t, uint64(10), c.Clock)
}

// The horizon is that of the client that is furthest behind, whichever clients come, go and move on.
func TestHorizonOfClients(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	s := newStore(t, 1, Config{})
	for id := range uint64(3000) {
		switch c := s.clients.all[rng.Uint64N(id+1)]; rng.IntN(6) {
		case 0:
			s.Attach(id, 1)
		case 1:
			last, found := uint64(0), false // the client that is furthest behind, or none
			for other, one := range s.clients.all {
				if !found || one.quiet < s.clients.all[last].quiet {
					last, found = other, true
				}
			}
			s.Detach(last)
		case 2:
			s.log.add(wire.Delta{Change: wire.ChangeGone})
		default:
			for other, one := range s.clients.all {
				if one == c || rng.IntN(4) == 0 {
					q := one.quiet + rng.Uint64N(s.log.last-one.quiet+1)
					require.NoError(t, s.Heard(other, wire.Horizon{Epoch: s.cfg.Epoch, Applied: s.log.last, Quiet: q}))
				}
			}
		}
		want := s.log.last
		for _, one := range s.clients.all {
			want = min(want, one.quiet)
		}
		require.Equal(t, want, s.horizon())
	}
}
