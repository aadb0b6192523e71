package own

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
)

func TestPromises(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	epoch, members := s.Ask(5 * time.Second)
	require.Equal(t, p.Epoch, epoch)
	require.Equal(t, []place.Life{lifeB, lifeC}, members)
	require.Equal(t, lease, s.Deadline())
	s.Promised(lifeB, 5*time.Second)
	s.Promised(lifeB, 5*time.Second)
	require.Equal(t, lease, s.Deadline(), "one is missing")
	s.Promised(lifeC, 4*time.Second)
	require.Equal(t, lease, s.Deadline(), "that is of another round")
	s.Promised(lifeC, 5*time.Second)
	require.Equal(t, 5*time.Second+lease, s.Deadline())

	s.Observe(View{p, nil}, 7*time.Second, 7*time.Second)
	s.Promised(lifeC, 5*time.Second)
	require.Equal(t, 7*time.Second+lease, s.Deadline(), "it does not shrink")

	s.Ask(8 * time.Second)
	s.Promised(lifeB, 8*time.Second)
	s.Ask(9 * time.Second)
	s.Promised(lifeC, 9*time.Second)
	require.Equal(t, 7*time.Second+lease, s.Deadline(), "rounds are not mixed")

	s = newServing(t, lifeA, first(t))
	_, members = s.Ask(5 * time.Second)
	require.Empty(t, members)
	require.Equal(t, 5*time.Second+lease, s.Deadline(), "it is alone")
}

// A promise keeps a member from taking over the shards of another one, and of no third one.
func TestPromiseIsKept(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	require.True(t, s.Promise(lifeA, lifeB, p.Epoch, 20*time.Second))
	require.True(t, s.Promise(lifeA, lifeB, p.Epoch, 19*time.Second))
	life, _ := dead(s, 20*time.Second+wait-1)
	require.Equal(t, lifeC, life)
	life, _ = dead(s, 20*time.Second+wait)
	require.Equal(t, lifeB, life)

	s.Learn(moved(t, p, 0, lifeC), 0)
	life, _ = dead(s, 20*time.Second+wait-1)
	require.Equal(t, lifeC, life, "another placement does not end it")
	s.Learn(taken(t, s.Placement(), lifeB), 0)
	require.Empty(t, s.promised, "a member that is gone needs none")
}

func TestNoPromise(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeB, p)
	require.False(t, s.Promise(lifeB2, lifeA, p.Epoch, 0), "another life was asked")
	require.False(t, s.Promise(lifeB, lifeA, p.Epoch-1, 0), "it knows a newer placement")
	require.True(t, s.Promise(lifeB, lifeA, p.Epoch, 0))
	require.True(t, s.Promise(lifeB, lifeA, p.Epoch+1, 0))
	require.False(t, s.Promise(lifeB, lifeA2, p.Epoch, 0), "it is no member")
	require.True(t, s.Promise(lifeB, lifeA2, p.Epoch+1, 0), "it may be one by then")
	require.False(t, NewServer(real, lifeB, 0).Promise(lifeB, lifeA, 1, 0), "it knows no placement")
}

// Promises to lives that may become members have a bound. One of them can be prolonged.
func TestPromisesAreBounded(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeB, p)
	require.True(t, s.Promise(lifeB, lifeA, p.Epoch, 0))
	n := 0
	for s.Promise(lifeB, place.Life{ID: "c", Boot: uint64(n)}, p.Epoch+1, 0) {
		n++
	}
	require.Equal(t, place.MaxServers, n)
	require.True(t, s.Promise(lifeB, lifeA, p.Epoch, time.Second), "once more")
	require.Equal(t, time.Second+wait, s.promised[lifeA])
}

// What may yet be made keeps a server from promising, and from believing promises.
func TestPending(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	promises := func(to place.Life) bool { return s.Promise(lifeA, to, p.Epoch+1, 0) }
	asks := func() bool { _, members := s.Ask(0); return members != nil }

	s.Sending(lifeB, 1)
	require.False(t, promises(lifeB))
	require.True(t, promises(lifeC))
	require.True(t, asks())
	s.Observe(View{p, at(0, lifeA, lifeB, lifeC)}, 0, 0)
	require.False(t, promises(lifeB), "an answer that is late")
	s.Observe(View{p, at(1, lifeA, lifeB, lifeC)}, 0, 0)
	require.False(t, promises(lifeB), "what it compares is so")
	s.Observe(View{p, at(2, lifeA, lifeB, lifeC)}, 0, 0)
	require.True(t, promises(lifeB), "the key has changed")

	s.Sending(lifeB, 2)
	s.Sending(lifeB, 3)
	s.Failed(lifeB, 2)
	require.False(t, promises(lifeB), "there is another one")
	s.Failed(lifeB, 3)
	require.True(t, promises(lifeB), "neither can be made")

	s.Ask(time.Minute)
	s.Sending(noLife, 0) // a member is added
	require.False(t, promises(lifeB))
	require.False(t, promises(lifeC))
	require.False(t, asks())
	before := s.Deadline()
	s.Promised(lifeB, time.Minute)
	s.Promised(lifeC, time.Minute)
	require.Equal(t, before, s.Deadline(), "there is no round")
	s.Sending(lifeB, 2)
	s.Observe(View{p, at(3, lifeA, lifeB, lifeC)}, 0, 0)
	require.False(t, promises(lifeB))
	s.Learn(moved(t, p, 0, lifeB), 0)
	require.True(t, promises(lifeB), "the placement has changed")
	require.True(t, asks())
}
