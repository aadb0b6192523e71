package own

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// dead returns the life that may be taken over at a time, and its revision.
func dead(s *Server, now time.Duration) (place.Life, int64) {
	life, revision, _ := s.Dead(now)
	return life, revision
}

var noLife place.Life

// hears has all beats until a time have a reply at once with the same view.
func hears(s *Server, v View, until time.Duration) {
	for at := s.lastBeat; at <= until; at += s.cfg.Beat() {
		s.Observe(v, at, at)
	}
	s.Observe(v, until, until)
}

func TestDead(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	life, _ := dead(s, wait)
	require.Equal(t, noLife, life)
	hears(s, View{p, at(1, lifeA, lifeB, lifeC)}, 9*time.Second)
	beats := at(2, lifeA, lifeC)
	beats[lifeB] = 1
	s.Observe(View{p, beats}, 9*time.Second, 10*time.Second)
	life, revision := dead(s, wait+1)
	require.Equal(t, lifeB, life)
	require.Equal(t, int64(1), revision)

	beats[lifeB] = 3
	s.Observe(View{p, beats}, 11*time.Second, 12*time.Second)
	life, _ = dead(s, 10*time.Second+wait)
	require.Equal(t, noLife, life)
	life, revision = dead(s, 10*time.Second+wait+1)
	require.Equal(t, lifeC, life, "from when the answer came")
	require.Equal(t, int64(2), revision)

	beats = at(2, lifeA, lifeB, lifeC) // a reply that is late
	s.Observe(View{p, beats}, 10*time.Second, 13*time.Second)
	life, _ = dead(s, 10*time.Second+wait+1)
	require.Equal(t, lifeC, life)
	s.Learn(taken(t, p, lifeC), 14*time.Second)
	life, revision = dead(s, 12*time.Second+wait+1)
	require.Equal(t, lifeB, life)
	require.Equal(t, int64(3), revision, "the last one that was seen")
}

// The key of a member is gone, which is no beat: the transaction compares that it still is.
func TestDeadOfALostKey(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	s.Observe(View{p, at(2, lifeA)}, time.Second, time.Second)
	life, revision := dead(s, wait+1)
	require.Equal(t, lifeB, life)
	require.Zero(t, revision)
	s.Observe(View{p, at(3, lifeA, lifeB)}, 2*time.Second, 2*time.Second)
	life, _ = dead(s, wait+1)
	require.Equal(t, noLife, life, "it has beaten again")
}

// Silence that a server could not hear counts as one beat.
func TestSilenceIsExcused(t *testing.T) {
	v := View{first(t, lifeB), at(1, lifeA, lifeB)}
	beat := real.Beat()
	s := newServing(t, lifeA, v.Placement)
	s.Observe(v, 2*beat, 2*beat)
	life, _ := dead(s, wait+1)
	require.Equal(t, lifeB, life, "two beats are usual")
	s.Observe(v, 4*beat+1, time.Minute)
	_, _, ok := s.Dead(wait + beat + 1)
	require.False(t, ok)
	life, _ = dead(s, wait+beat+2)
	require.Equal(t, lifeB, life)
	s.Observe(v, time.Hour, time.Hour)
	s.Observe(v, 0, time.Hour)
	_, _, ok = s.Dead(time.Hour + wait - 5*beat)
	require.False(t, ok)
	life, _ = dead(s, time.Hour+wait)
	require.Equal(t, lifeB, life)
}

// After a long silence that a server could not hear the others have some time to beat, and a beat of each silence counts.
func TestGrace(t *testing.T) {
	v := View{first(t, lifeB), at(1, lifeA, lifeB)}
	beat := real.Beat()
	s := newServing(t, lifeA, v.Placement)
	s.Observe(v, time.Hour, time.Hour)
	_, _, ok := s.Dead(time.Hour + real.Grace())
	require.False(t, ok)
	life, _ := dead(s, time.Hour+real.Grace()+1)
	require.Equal(t, lifeB, life)
	s.Observe(v, time.Hour+3*beat, time.Hour+3*beat)
	_, _, ok = s.Dead(time.Hour + 6*beat)
	require.False(t, ok)
	life, _ = dead(s, time.Hour+6*beat+1)
	require.Equal(t, lifeB, life)

	s.Saw(lifeB, 2, 2*time.Hour)
	s.Observe(v, 2*time.Hour, 2*time.Hour)
	_, _, ok = s.Dead(2*time.Hour + wait)
	require.False(t, ok, "it was heard meanwhile")
	life, _ = dead(s, 2*time.Hour+wait+1)
	require.Equal(t, lifeB, life)
}

// A beat that etcd tells of counts from then on, and a reply that comes later does not count again.
func TestSaw(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	s.Saw(lifeB, 5, 2*time.Second)
	s.Saw(lifeB, 5, 3*time.Second)
	s.Saw(lifeB, 4, 3*time.Second)
	s.Saw(lifeC, 6, 3*time.Second)
	require.False(t, s.Hears(lifeC, 3*time.Second), "it is no member")
	hears(s, View{p, at(5, lifeA, lifeB)}, 10*time.Second)
	_, _, ok := s.Dead(2*time.Second + wait)
	require.False(t, ok)
	life, revision := dead(s, 2*time.Second+wait+1)
	require.Equal(t, lifeB, life)
	require.Equal(t, int64(5), revision)
}

// The next member is due when it is dead unless it beats.
func TestDue(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := NewServer(real, lifeA, 0)
	require.Zero(t, s.Due(0), "it knows no members")
	s = newServing(t, lifeA, p)
	require.Equal(t, wait, s.Due(0))
	s.Saw(lifeB, 2, time.Second)
	require.Equal(t, wait, s.Due(time.Second), "of the other one, and not its own")
	s.Saw(lifeC, 2, 2*time.Second)
	require.Equal(t, time.Second+wait, s.Due(2*time.Second))
	require.True(t, s.Promise(lifeA, lifeB, p.Epoch, 3*time.Second))
	require.Equal(t, 2*time.Second+wait, s.Due(3*time.Second))
	require.Equal(t, 3*time.Second+wait, s.Due(2*time.Second+wait), "the promise is over")
	require.Zero(t, s.Due(3*time.Second+wait))

	s = NewServer(real, lifeC, 0)
	s.Observe(View{first(t, lifeB), at(1, lifeA, lifeB)}, 0, 0)
	s.Observe(View{p, at(1, lifeA, lifeB, lifeC)}, time.Second, time.Second)
	require.Equal(t, time.Second+wait, s.Due(time.Second), "it joined then")
}

// A member without a key is dead, too.
func TestDeadWithoutKey(t *testing.T) {
	p := first(t, lifeB)
	s := NewServer(real, lifeA, 0)
	_, _, ok := s.Dead(time.Hour)
	require.False(t, ok, "it knows no placement")
	s.Learn(p, 0)
	_, _, ok = s.Dead(time.Hour)
	require.False(t, ok, "it has not seen the key yet")
	s.Observe(View{p, at(1, lifeA)}, time.Minute, time.Minute)
	_, _, ok = s.Dead(time.Minute + wait)
	require.False(t, ok)
	life, revision := dead(s, time.Minute+wait+1)
	require.Equal(t, lifeB, life)
	require.Zero(t, revision)
}

// Members take nothing over soon after they have joined.
func TestNewMemberWaits(t *testing.T) {
	p := first(t, lifeB)
	s := NewServer(real, lifeC, 0)
	s.Observe(View{p, at(1, lifeA, lifeB, lifeC)}, 0, 0)
	_, _, ok := s.Dead(time.Hour)
	require.False(t, ok, "it is no member")
	s.Observe(View{joined(t, p, lifeC), at(1, lifeA, lifeB, lifeC)}, time.Minute, time.Minute)
	_, _, ok = s.Dead(time.Minute + wait - 1)
	require.False(t, ok)
	life, _ := dead(s, time.Minute+wait)
	require.Equal(t, lifeA, life)
	hears(s, View{joined(t, p, lifeC), at(1, lifeA, lifeB, lifeC)}, 2*time.Minute)
	life, _ = dead(s, 2*time.Minute)
	require.Equal(t, lifeA, life, "it joins once")
}

// The next life of a member takes its place, and nothing else, when it has waited.
func TestNextLife(t *testing.T) {
	p := first(t, lifeB)
	s := NewServer(real, lifeB2, time.Second)
	s.Observe(View{p, at(1, lifeA, lifeB, lifeB2)}, 0, 0)
	_, _, ok := s.Dead(time.Second + wait - 1)
	require.False(t, ok)
	life, _ := dead(s, time.Second+wait)
	require.Equal(t, lifeB, life)

	succeeded, err := p.Succeed(entry(lifeB2))
	require.NoError(t, err)
	s.Learn(succeeded, time.Hour)
	_, _, ok = s.Dead(time.Hour)
	require.False(t, ok)

	s = NewServer(real, lifeB, 0)
	s.Learn(succeeded, 0)
	s.note(View{succeeded, nil}, 0)
	require.True(t, s.Gone())
	_, _, ok = s.Dead(time.Hour)
	require.False(t, ok, "a former life takes nothing")
}

func TestJoining(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	_, ok := s.Joining(View{p, at(1, lifeA, lifeB, lifeB2)})
	require.False(t, ok, "its id has a member")
	for range 10 { // whatever the order of a map is
		life, ok := s.Joining(View{p, at(1, lifeB2, place.Life{ID: "d", Boot: 9}, lifeC, place.Life{ID: "c", Boot: 5}, place.Life{ID: "c", Boot: 4})})
		require.True(t, ok)
		require.Equal(t, place.Life{ID: "c", Boot: 5}, life)
	}
	s.Learn(taken(t, p, lifeB), 0)
	life, ok := s.Joining(View{p, at(1, lifeA, lifeB, lifeB2)})
	require.True(t, ok)
	require.Equal(t, lifeB2, life)
	_, ok = s.Joining(View{p, at(1, lifeA, lifeB)})
	require.False(t, ok, "it has ended")

	s = newServing(t, lifeC, p)
	_, ok = s.Joining(View{p, at(1, lifeC)})
	require.False(t, ok, "it is no member itself")
}

// A member is heard as long as its key changes.
func TestHears(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	s.Observe(View{p, at(2, lifeA, lifeB)}, 9*time.Second, 10*time.Second)
	require.True(t, s.Hears(lifeB, 10*time.Second+wait))
	require.False(t, s.Hears(lifeB, 10*time.Second+wait+1))
	require.False(t, s.Hears(place.Life{ID: "other", Boot: 1}, 10*time.Second))
}
