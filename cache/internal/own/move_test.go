package own

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClosed(t *testing.T) {
	s := newServing(t, lifeA, first(t, lifeB))
	before := s.Version()
	version, ok := s.Close(1, 1, lifeB)
	require.True(t, ok)
	require.Equal(t, before+1, version)
	require.Equal(t, version, s.Version())
	require.False(t, s.Closed(1, version-1), "another closing")
	require.True(t, s.Closed(1, version))
	require.False(t, s.Closed(0, version), "another shard")
	require.False(t, owns(s, 1, 0))
	require.True(t, owns(s, 0, 0))
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
	require.True(t, s.Closed(1, version))
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
	_, ok := s.Release(Closing{0, 1, version})
	require.False(t, ok, "it is not closed")
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
	require.False(t, s.Closed(1, version), "the caller asks late")
	require.True(t, owns(s, 1, 0))

	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Closed(1, version))
	s.Release(Closing{1, 1, version})
	s.Learn(moved(t, p, 2, lifeB), 0)
	require.True(t, s.Cancel(1, version), "what was sent is void")
	require.True(t, owns(s, 1, 0))

	// A closing that nothing was sent for, after one that was.
	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Closed(1, version))
	s.Release(Closing{1, 1, version})
	s.Learn(moved(t, s.Placement(), 3, lifeB), 0)
	require.True(t, s.Cancel(1, version))
	version, _ = s.Close(1, 1, lifeB)
	require.True(t, s.Cancel(1, version))
}

// A shard is served again when its next owner is gone, and goes on moving otherwise.
func TestNextOwnerIsGone(t *testing.T) {
	p := first(t, lifeB, lifeC)
	s := newServing(t, lifeA, p)
	version, _ := s.Close(1, 1, lifeB)
	next := taken(t, p, lifeC)
	s.Learn(next, 0)
	require.True(t, s.Closed(1, version))
	require.Equal(t, version, s.Version())
	s.Learn(taken(t, next, lifeB), 0)
	require.False(t, s.Closed(1, version))
	require.Equal(t, version+1, s.Version())
	require.True(t, owns(s, 1, 0))
	_, ok := s.Close(1, 1, lifeB)
	require.False(t, ok)
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
