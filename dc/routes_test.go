//go:build linux && cgo

package dc

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

func newTestRoutes(t *testing.T) *routes {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	s := &routes{}
	require.NoError(t, s.init(pd, verbs.GIDEntry{Port: 1}, 0))
	return s
}

// handlesNow are the address handles made and closed since it was asked last. It
// means something while one goroutine makes them; that none is left, which others made
// at once, is seen when the domain closes.
func handlesNow() (made, closed int) {
	r := standin.Recorded()
	return strings.Count(r, "create_ah"), strings.Count(r, "destroy_ah")
}

// TestRoutes: one handle for each port however many ask at once, closed with its last
// peer, and made again.
func TestRoutes(t *testing.T) {
	s := newTestRoutes(t)
	a, b := Address{GID: verbs.GID{15: 1}}, Address{GID: verbs.GID{15: 2}}
	const each = 20
	got := make([]*route, 2*each)
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() {
			var err error
			if got[n], err = s.get([]Address{a, b}[n%2]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(t, s.at, 2)
	for n := range got {
		require.Same(t, got[n%2], got[n])
		require.Equal(t, each, got[n].peers)
	}
	handlesNow()
	for n, r := range got {
		_, closed := handlesNow()
		require.Equal(t, n == 2*each-1, closed == 1)
		require.NoError(t, s.put(r))
	}
	require.Empty(t, s.at)
	_, closed := handlesNow()
	require.Equal(t, 1, closed)
	again, err := s.get(a)
	require.NoError(t, err)
	require.NotSame(t, got[0], again)
	standin.Refuse("create_ah", syscall.ETIMEDOUT)
	_, err = s.get(b)
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	require.Len(t, s.at, 1, "nobody is there")
	require.NoError(t, s.close())
	require.NoError(t, s.put(again), "it is closed already")
	_, err = s.get(a)
	require.ErrorIs(t, err, ErrClosed)
	_, closed = handlesNow()
	require.Equal(t, 1, closed)
}

// TestStaleRoutes are left by peers that come back, and closed with their last peer, or at
// the end.
func TestStaleRoutes(t *testing.T) {
	s := newTestRoutes(t)
	a, b := Address{GID: verbs.GID{15: 1}}, Address{GID: verbs.GID{15: 2}}
	get := func(at Address) *route {
		r, err := s.get(at)
		require.NoError(t, err)
		return r
	}
	first, same, other := get(a), get(a), get(b)
	s.doubt(first)
	require.True(t, same.stale.Load())
	next := get(a)
	require.NotSame(t, first, next)
	require.Same(t, other, get(b))
	s.doubt(first)
	require.Same(t, next, get(a), "it is another one's place now")
	handlesNow()
	require.NoError(t, s.put(first))
	require.NoError(t, s.put(same))
	_, closed := handlesNow()
	require.Equal(t, 1, closed)
	require.Same(t, next, get(a))
	s.expire()
	require.True(t, next.stale.Load() && other.stale.Load())
	require.NotSame(t, next, get(a))
	handlesNow()
	require.NoError(t, s.close())
	_, closed = handlesNow()
	require.Equal(t, 3, closed)
}

// TestRoutesClosedBeside goroutines that ask for them: no handle is left.
func TestRoutesClosedBeside(t *testing.T) {
	s := newTestRoutes(t)
	var all sync.WaitGroup
	var begun atomic.Int32
	for n := range byte(8) {
		all.Go(func() {
			for k := range byte(50) {
				begun.Add(1)
				r, err := s.get(Address{GID: verbs.GID{14: n, 15: k}})
				if err != nil {
					return
				}
				if k%2 == 0 {
					if err := s.put(r); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for begun.Load() < 40 {
	}
	require.NoError(t, s.close())
	all.Wait()
}

// TestRoutesRace: the slower goroutine closes the handle that it has made in vain.
func TestRoutesRace(t *testing.T) {
	s := newTestRoutes(t)
	for n := range byte(200) {
		var all, begin sync.WaitGroup
		begin.Add(1)
		for range 4 {
			all.Go(func() {
				begin.Wait()
				if _, err := s.get(Address{GID: verbs.GID{15: n}}); err != nil {
					t.Error(err)
				}
			})
		}
		begin.Done()
		all.Wait()
		require.Equal(t, 4, s.at[way{gid: [16]byte{15: n}}].peers)
		standin.Recorded() // which has little room
	}
	require.NoError(t, s.close())
}
