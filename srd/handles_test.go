package srd

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// The handle that was found last is no longer found when it was forgotten, and only for its
// own way; one that is found counts as used.
func TestHandleThatWasForgotten(t *testing.T) {
	to, other := way{label: 1}, way{label: 2}
	h := newHandles(&Endpoint{start: time.Now()})
	h.making, h.helped = 1, time.Hour // nothing is made here, however long the test takes
	get := func(to way) *handle {
		a, coming := h.get(to, false)
		require.Equal(t, a == nil, coming)
		return a
	}
	require.Nil(t, get(to), "it is being made")
	require.Equal(t, to, <-h.asked)
	h.of[to].ah = new(verbs.AH)
	found := get(to)
	require.NotNil(t, found)
	require.Nil(t, get(other))
	require.Equal(t, other, <-h.asked)
	h.forget(other)

	found.dirty = false
	require.Same(t, found, get(to))
	require.True(t, found.dirty)
	require.True(t, h.evict())
	require.Nil(t, get(to))
	require.Equal(t, to, <-h.asked)
	require.Len(t, h.dropped, 1)
}

// The error of a message to a silent peer says why there is no way to it, if that is known.
func TestWhyThereIsNoWay(t *testing.T) {
	ep := &Endpoint{}
	ep.handles = newHandles(ep)
	r, to := &request{status: Unresponsive, stranger: true}, verbs.GID{0: 1}
	require.Equal(t, errNoAnswer, ep.why(r, to, 0))
	ep.handles.note(to, verbs.ErrNoGID)
	err := ep.why(r, to, 0)
	require.ErrorIs(t, err, ErrUnresponsive)
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.Equal(t, errNoAnswer, ep.why(r, verbs.GID{0: 2}, 0))
	r.status = Delivered
	require.NoError(t, ep.why(r, to, 0))
	r.status = Unresponsive
	ep.handles.note(to, nil)
	require.Equal(t, errNoAnswer, ep.why(r, to, 0))
	for i := range 2 * mostFailed {
		ep.handles.note(verbs.GID{byte(i), byte(i >> 8)}, verbs.ErrNoGID)
	}
	require.LessOrEqual(t, len(ep.handles.failed), mostFailed)
}

// Strangers have few handles made at once, and none while more are made for others.
func TestHandlesForStrangers(t *testing.T) {
	h := newHandles(&Endpoint{start: time.Now()})
	h.asked = make(chan way, mostMaking+1)
	asks := func(n int, stranger bool) (made int) {
		for range n {
			if _, coming := h.get(way{label: uint32(len(h.of) + 1)}, stranger); coming {
				made++
			}
		}
		return made
	}
	require.Equal(t, 1, asks(1, true))
	h.helped = time.Hour // nothing is made here, however long the test takes
	require.Equal(t, forSomeone-1, asks(10, true))
	_, coming := h.get(way{label: 1}, true)
	require.True(t, coming)
	require.Equal(t, mostMaking-forSomeone, asks(2*mostMaking, false))
	require.Len(t, h.asked, mostMaking)
	h.making = forSomeone
	require.Zero(t, asks(1, true))
	require.Equal(t, 1, asks(1, false))
}

// A handle that is renewed is used meanwhile, and closed when no send uses it any more. When
// the host has changed, none of the old ones is used.
func TestHandlesThatAreReplaced(t *testing.T) {
	to := way{label: 1}
	h := newHandles(&Endpoint{start: time.Now()})
	old := &handle{ah: new(verbs.AH), uses: 1}
	h.of[to], h.hosts[to.to] = old, 1
	get := func() *handle {
		a, _ := h.get(to, false)
		return a
	}
	require.Same(t, old, get())
	h.renew(to)
	require.Same(t, old, get())
	require.Same(t, old, get())
	require.Len(t, h.asked, 1)
	require.Equal(t, 1, h.making)

	h.dropAll()
	require.Nil(t, get())
	require.Empty(t, h.unused())
	old.uses = 0
	require.Equal(t, []*handle{old}, h.unused())
	require.Empty(t, h.dropped)
}

// Packets to as many hosts as the handles are for have one nearly always: with more hosts there
// are fewer ways to each.
func TestHandlesOfManyHosts(t *testing.T) {
	for _, hosts := range []int{1000, 2048, 4000, 12_000} {
		l := &links{ep: &Endpoint{start: time.Now()}}
		l.ep.handles = newHandles(l.ep)
		h := &l.ep.handles
		for i := range 8 {
			l.paths = append(l.paths, &link{index: i, label: uint32(i + 1)})
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var waited int
		gets := 20 * hosts * 8
		for i := range gets {
			var to verbs.GID
			binary.BigEndian.PutUint32(to[12:], rng.Uint32N(uint32(hosts)))
			h.helped = l.ep.now() + time.Hour // nothing is made by others
			if a, coming := h.get(l.way(to, rng.IntN(8)), false); a == nil {
				require.True(t, coming)
				h.of[<-h.asked].ah = new(verbs.AH)
				h.making--
				if i >= gets/2 {
					waited++
				}
			}
			h.dropped = h.dropped[:0]
		}
		share := float64(waited) / float64(gets/2)
		t.Logf("%d hosts: %d ways to each, %.4f of the packets wait for a handle", hosts, h.share(), share)
		require.Less(t, share, 0.01)
		require.LessOrEqual(t, len(h.of), mostHandles)
		total := 0
		for _, n := range h.hosts {
			total += n
		}
		require.Len(t, h.of, total)
	}
}
