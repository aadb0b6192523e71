package own

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// real is the configuration of a cluster, with a TTL that is easy to reckon with.
var real = Config{TTL: 10240 * time.Millisecond, Drift: 1024}

const (
	lease = 10220 * time.Millisecond
	wait  = 11264 * time.Millisecond
)

// Servers a, b and c, each in its first life.
var (
	lifeA  = place.Life{ID: "a", Boot: 1}
	lifeB  = place.Life{ID: "b", Boot: 1}
	lifeC  = place.Life{ID: "c", Boot: 1}
	lifeA2 = place.Life{ID: "a", Boot: 2}
	lifeB2 = place.Life{ID: "b", Boot: 2}
)

func TestConfig(t *testing.T) {
	require.Equal(t, lease, real.Lease())
	require.Equal(t, wait, real.Wait())
	require.Equal(t, real.TTL/6, real.Beat())
}

// first is a placement of four shards with the members a, who owns all, and the others.
func first(t *testing.T, others ...place.Life) *place.Placement {
	t.Helper()
	p := place.New([16]byte{1}, shards, entry(lifeA))
	for _, life := range others {
		p = joined(t, p, life)
	}
	return p
}

func joined(t *testing.T, p *place.Placement, life place.Life) *place.Placement {
	t.Helper()
	next, err := p.Join(entry(life))
	require.NoError(t, err)
	return next
}

func moved(t *testing.T, p *place.Placement, shard int, to place.Life) *place.Placement {
	t.Helper()
	next, err := p.Move(to, shard)
	require.NoError(t, err)
	return next
}

func taken(t *testing.T, p *place.Placement, dead place.Life) *place.Placement {
	t.Helper()
	next, err := p.TakeOver(dead)
	require.NoError(t, err)
	return next
}

// at is what the lives' keys have, each the same revision.
func at(revision int64, lives ...place.Life) map[place.Life]int64 {
	beats := make(map[place.Life]int64)
	for _, life := range lives {
		beats[life] = revision
	}
	return beats
}

// newServing returns a server that was answered a beat at 0 and has entered its shards.
func newServing(t *testing.T, life place.Life, p *place.Placement) *Server {
	t.Helper()
	s := NewServer(real, life, 0)
	require.Nil(t, s.Placement())
	s.Observe(View{p, at(1, lifeA, lifeB, lifeC)}, 0, 0)
	require.Same(t, p, s.Placement())
	for i := range shards {
		if epoch, _, ok := s.Opening(i); ok {
			s.Open(i, epoch)
		}
	}
	return s
}

// owns reports whether changes of a shard are executed.
func owns(s *Server, i int, now time.Duration) bool {
	return s.shards[i].state == open && now < s.deadline
}

func TestDeadline(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	require.Equal(t, uint8(1), s.Number())
	require.True(t, owns(s, 0, lease-1))
	require.False(t, owns(s, 0, lease), "it does not own at the deadline")

	s.Observe(View{p, at(2, lifeA, lifeB)}, 3*time.Second, 5*time.Second)
	require.Equal(t, 3*time.Second+lease, s.Deadline(), "it counts from when the beat was sent")
	s.Observe(View{p, at(2, lifeA, lifeB)}, 2*time.Second, 6*time.Second)
	require.Equal(t, 3*time.Second+lease, s.Deadline(), "it does not shrink")

	next := moved(t, p, 0, lifeB)
	s.Learn(next, 6*time.Second)
	s.Observe(View{p, at(2, lifeA, lifeB)}, 7*time.Second, 8*time.Second)
	require.Equal(t, 3*time.Second+lease, s.Deadline(), "an older placement extends nothing")
	require.Same(t, next, s.Placement())
	s.Observe(View{next, at(2, lifeA, lifeB)}, 7*time.Second, 8*time.Second)
	require.Equal(t, 7*time.Second+lease, s.Deadline(), "the same placement does")
}

// A server that is no member owns nothing, whatever the placement says of its number.
func TestNoMember(t *testing.T) {
	p := first(t)
	for _, life := range []place.Life{lifeB, lifeA2} {
		s := newServing(t, life, p)
		require.Zero(t, s.Number())
		require.Zero(t, s.Deadline())
		require.False(t, owns(s, 0, 0))
		require.False(t, s.Gone())
		require.False(t, s.Silent(time.Hour))

		version := s.Version()
		next := moved(t, joined(t, p, lifeC), 1, lifeC)
		next.Shards[2].Owner = 0
		require.Empty(t, s.Learn(next, 0))
		_, _, ok := s.Opening(2)
		require.False(t, ok, "it is not the owner of what has none")
		require.Equal(t, version, s.Version(), "nothing changes for it")
	}
}

func TestGone(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	next := taken(t, p, lifeA)
	require.Equal(t, []int{0, 1, 2, 3}, s.Observe(View{next, at(2, lifeB)}, time.Second, time.Second))
	require.True(t, s.Gone())
	require.False(t, owns(s, 0, time.Second))
	require.Equal(t, lease, s.Deadline())

	s.Learn(joined(t, next, lifeA2), time.Second)
	require.True(t, s.Gone())

	// It was a member without knowing it.
	s = newServing(t, lifeB, first(t))
	require.False(t, s.Gone())
	s.Learn(taken(t, p, lifeB), 0)
	require.True(t, s.Gone())

	s = newServing(t, lifeA, first(t, lifeB))
	s.Learn(joined(t, next, lifeA2), 0)
	require.True(t, s.Gone(), "the next life of its id is a member")

	// Since the placement was full, another server has its place.
	s = newServing(t, lifeA, p)
	for i := 0; len(next.Servers) < place.MaxServers; i++ {
		next = joined(t, next, place.Life{ID: strconv.Itoa(i), Boot: 1})
	}
	next = joined(t, next, lifeC)
	require.True(t, next.CanJoin(lifeA))
	s.Learn(next, 0)
	require.True(t, s.Gone())
}

// The records of shards that arrive have to be prepared first.
func TestOpening(t *testing.T) {
	s := NewServer(real, lifeA, 0)
	require.Empty(t, s.Learn(first(t), 0))
	s.Observe(View{s.Placement(), at(1, lifeA)}, 0, 0)
	epoch, keep, ok := s.Opening(1)
	require.True(t, ok)
	require.False(t, keep)
	require.Equal(t, uint32(1), epoch)
	require.False(t, owns(s, 1, 0))

	version := s.Version()
	s.Open(1, 2)
	require.False(t, owns(s, 1, 0), "another epoch")
	require.Equal(t, version, s.Version())
	s.Open(1, 1)
	require.True(t, owns(s, 1, 0))
	require.Equal(t, version+1, s.Version())
	s.Open(1, 1)
	require.Equal(t, version+1, s.Version(), "it is entered once")
	_, _, ok = s.Opening(1)
	require.False(t, ok)
	require.False(t, owns(s, 0, 0))
}

// A shard that was away is entered again, in another epoch.
func TestAwayAndBack(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	away := moved(t, p, 2, lifeB)
	version := s.Version()
	require.Equal(t, []int{2}, s.Learn(away, 0))
	require.Empty(t, s.Learn(away, 0))
	require.Equal(t, version+1, s.Version())
	require.False(t, owns(s, 2, 0))
	require.True(t, owns(s, 1, 0))
	back := moved(t, away, 2, lifeA)
	require.Empty(t, s.Learn(back, 0))
	epoch, keep, ok := s.Opening(2)
	require.True(t, ok)
	require.False(t, keep, "it has no copy")
	require.Equal(t, back.Epoch, epoch)

	// Both at once: the server has seen no placement in between.
	s = newServing(t, lifeA, p)
	require.Equal(t, []int{2}, s.Learn(back, 0))
	_, _, ok = s.Opening(2)
	require.True(t, ok)
	require.Empty(t, s.Learn(away, 0), "older placements come late")
	_, _, ok = s.Opening(2)
	require.True(t, ok)
}

func TestSilent(t *testing.T) {
	p := first(t)
	s := newServing(t, lifeA, p)
	limit := 2 * real.Beat()
	require.False(t, s.Silent(limit))
	require.True(t, s.Silent(limit+1))
	s.Observe(View{p, nil}, time.Second, 3*time.Second)
	require.False(t, s.Silent(time.Second+limit))
	require.True(t, s.Silent(time.Second+limit+1))
	s.Observe(View{p, nil}, 0, 4*time.Second)
	require.False(t, s.Silent(time.Second+limit))
}
