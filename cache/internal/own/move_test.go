package own

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMoveWaitsForGrants(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	before := s.Version()
	g := s.Grant(7, 0)
	require.Equal(t, Grant{before, time.Second, 0}, g)
	version, ok := s.Close(1, 1, lifeB)
	require.True(t, ok)
	require.Equal(t, before+1, version)
	require.Equal(t, version, s.Version())
	_, ok = s.Readable(1)
	require.False(t, ok)
	require.True(t, owns(s, 1, 0), "calls are executed")

	require.Equal(t, version, s.Grant(7, 500*time.Millisecond).Version)
	require.False(t, s.Closed(1, version, time.Second-1))
	require.True(t, owns(s, 1, 0))
	require.False(t, s.Closed(1, version-1, time.Second), "another closing")
	require.False(t, owns(s, 1, 0), "it is closed")
	require.True(t, s.Closed(1, version, time.Second), "later grants are of the new list")
	require.True(t, s.Closed(1, version, 0))
	require.False(t, owns(s, 1, 0))
	require.True(t, owns(s, 0, 0))
}

func TestMoveWaitsForConfirmations(t *testing.T) {
	s := newServing(t, lifeA, first(t, lifeB))
	s.Grant(7, 0)
	s.Grant(8, 0)
	s.Grant(9, 0)
	version, _ := s.Close(1, 1, lifeB)
	s.Confirm(7, version)
	s.Confirm(7, version-1)
	s.Confirm(8, version-1)
	require.False(t, s.Closed(1, version, 0))
	s.Confirm(8, version+1)
	require.False(t, s.Closed(1, version, 0))
	s.Detach(9)
	require.True(t, s.Closed(1, version, 0))
}

func TestClose(t *testing.T) {
	s := newServing(t, lifeA, first(t, lifeB, lifeC))
	_, ok := s.Close(1, 2, lifeB)
	require.False(t, ok, "another epoch")
	_, ok = s.Close(1, 1, lifeB2)
	require.False(t, ok, "no member")
	_, ok = newServing(t, lifeB, first(t, lifeB)).Close(1, 1, lifeC)
	require.False(t, ok, "another one's shard")
	version, ok := s.Close(1, 1, lifeB)
	require.True(t, ok)
	again, ok := s.Close(1, 1, lifeB)
	require.True(t, ok)
	require.Equal(t, version, again)
	_, ok = s.Close(1, 1, lifeC)
	require.False(t, ok, "it is closing for another one")
	_, ok = s.Close(1, 2, lifeB)
	require.False(t, ok, "another epoch")
	require.True(t, s.Closed(1, version, 0))
	again, ok = s.Close(1, 1, lifeB)
	require.True(t, ok)
	require.Equal(t, version, again)
	require.True(t, s.Cancel(1, version))
	_, ok = s.Close(1, 1, lifeC)
	require.True(t, ok)
}

func TestRelease(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeA, p)
	version, _ := s.Close(1, 1, lifeB)
	_, ok := s.Release(Closing{1, 1, version})
	require.False(t, ok, "it is not closed")
	require.True(t, s.Closed(1, version, 0))
	_, ok = s.Release(Closing{1, 1, version - 1})
	require.False(t, ok, "another closing")
	_, ok = s.Release(Closing{1, 2, version})
	require.False(t, ok, "another epoch")
	next, ok := s.Release(Closing{1, 1, version})
	require.True(t, ok)
	require.Equal(t, moved(t, p, 1, lifeB), next)
	require.False(t, s.Cancel(1, version), "it may be made")

	other := moved(t, p, 2, lifeB) // comes first
	s.Learn(other, 0)
	require.False(t, owns(s, 1, 0))
	next, ok = s.Release(Closing{1, 1, version})
	require.True(t, ok)
	require.Equal(t, moved(t, other, 1, lifeB), next)
	require.False(t, s.Cancel(1, version))
	require.Equal(t, []int{1}, s.Learn(next, 0))
	require.False(t, s.Cancel(1, version))
	_, ok = s.Release(Closing{1, 1, version})
	require.False(t, ok)
}

func TestCancel(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	require.False(t, s.Cancel(1, 0), "nothing is closed")
	version, _ := s.Close(1, 1, lifeB)
	require.False(t, s.Cancel(1, version-1))
	require.True(t, s.Cancel(1, version))
	require.Equal(t, version+1, s.Version())
	_, ok := s.Readable(1)
	require.True(t, ok)
	require.False(t, s.Closed(1, version, time.Hour), "the caller asks late")
	require.True(t, owns(s, 1, 0))

	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Closed(1, version, 0))
	s.Release(Closing{1, 1, version})
	s.Learn(moved(t, p, 2, lifeB), 0)
	require.True(t, s.Cancel(1, version), "what was sent is void")
	require.True(t, owns(s, 1, 0))

	// A closing that nothing was sent for, after one that was.
	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Closed(1, version, 0))
	s.Release(Closing{1, 1, version})
	s.Learn(moved(t, s.Placement(), 3, lifeB), 0)
	require.True(t, s.Cancel(1, version))
	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Cancel(1, version))
}

// A shard is served again when its next owner is gone, and goes on moving otherwise.
func TestNextOwnerIsGone(t *testing.T) {
	for _, close := range []bool{false, true} {
		p := first(t, lifeB, lifeC)
		s := newServing(t, lifeA, p)
		version, _ := s.Close(1, 1, lifeB)
		if close {
			require.True(t, s.Closed(1, version, 0))
		}
		next := taken(t, p, lifeC)
		s.Learn(next, 0)
		_, ok := s.Readable(1)
		require.False(t, ok)
		require.Equal(t, version, s.Version())
		s.Learn(taken(t, next, lifeB), 0)
		_, ok = s.Readable(1)
		require.True(t, ok)
		require.Equal(t, version+1, s.Version())
		require.True(t, owns(s, 1, 0))
		_, ok = s.Close(1, 1, lifeB)
		require.False(t, ok)
	}
}

// A copy is kept if the shard was handed over, and none that is older than the last one.
func TestImported(t *testing.T) {
	p := first(t, lifeB)
	s := newServing(t, lifeB, p)
	require.True(t, s.Imported(1, 4, 7))
	require.False(t, s.Imported(1, 3, 9))
	require.False(t, s.Imported(1, 4, 6))
	require.True(t, s.Imported(1, 4, 7), "the same, again")
	require.True(t, s.Imported(1, 4, 8))
	require.True(t, s.Imported(1, 5, 1))
	s.Learn(moved(t, p, 0, lifeB), 0) // another one comes without a copy
	_, keep, ok := s.Opening(0)
	require.True(t, ok)
	require.False(t, keep)
	s.Learn(moved(t, s.Placement(), 1, lifeB), 0)
	_, keep, ok = s.Opening(1)
	require.True(t, ok)
	require.True(t, keep)
	require.False(t, s.Imported(1, 9, 9), "it is its own")

	s.Learn(moved(t, s.Placement(), 1, lifeA), 0)
	s.Learn(moved(t, s.Placement(), 1, lifeB), 0)
	_, keep, _ = s.Opening(1)
	require.False(t, keep, "a copy is kept once")

	s = newServing(t, lifeB, p)
	require.True(t, s.Imported(1, 1, 7))
	s.Learn(taken(t, p, lifeA), 0)
	_, keep, ok = s.Opening(1)
	require.True(t, ok)
	require.False(t, keep, "what was taken over may have changed after the copy")
}

// A copy outlives other changes of the placement.
func TestImportedStays(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeB, p)
	require.True(t, s.Imported(1, 1, 7))
	s.Learn(moved(t, p, 2, lifeC), 0)
	s.Learn(moved(t, s.Placement(), 1, lifeB), 0)
	_, keep, _ := s.Opening(1)
	require.True(t, keep)
}
