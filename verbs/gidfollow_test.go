package verbs

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func gidAt(addr string, typ GIDType, port, index uint8, ifindex int) GIDEntry {
	return GIDEntry{GID: GIDOf(netip.MustParseAddr(addr)), Type: typ, Port: port, Index: index, IfIndex: ifindex}
}

// TestFindGIDAgain: only the index may be another one, unless a netdev was made anew with
// an address that only one has.
func TestFindGIDAgain(t *testing.T) {
	v4 := gidAt("10.0.0.1", GIDRoCEv2, 1, 3, 7)
	local := gidAt("fe80::1", GIDRoCEv2, 1, 1, 7)
	others := []GIDEntry{gidAt("10.0.0.1", GIDRoCEv1, 1, 2, 7), gidAt("10.0.0.1", GIDRoCEv2, 2, 3, 7), gidAt("10.0.0.2", GIDRoCEv2, 1, 3, 7), gidAt("fe80::1", GIDRoCEv2, 1, 4, 8)}
	for _, e := range []GIDEntry{v4, local} {
		_, ok := e.again(others)
		require.False(t, ok, "%v", e)
	}
	moved := func(e GIDEntry, index uint8, ifindex int) GIDEntry {
		e.Index, e.IfIndex = index, ifindex
		return e
	}
	for _, c := range []struct{ was, now GIDEntry }{
		{v4, v4},
		{v4, moved(v4, 9, 7)},
		{v4, moved(v4, 9, 8)},
		{local, moved(local, 9, 7)},
	} {
		got, ok := c.was.again(append(others[:4:4], c.now))
		require.True(t, ok)
		require.Equal(t, c.now, got)
	}
	got, _ := v4.again([]GIDEntry{moved(v4, 9, 8), moved(v4, 10, 7), moved(v4, 11, 9)})
	require.Equal(t, moved(v4, 10, 7), got, "the same netdev's")
}

// TestFollowGID: events of the port, and of no other, that have come together are yielded
// once, and none is missed that comes while one is handled.
func TestFollowGID(t *testing.T) {
	r := newAsyncReader()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := gidAt("10.0.0.1", GIDRoCEv2, 1, 0, 7)
	event := func(typ EventType, port uint8) { r.publish(Event{Type: typ, Port: port}) }
	found := 0
	seq := follow(ctx, r, e, nil, func(was GIDEntry) (GIDEntry, error) {
		require.Equal(t, e, was, "what was found last")
		found++
		e.Index++
		return e, nil
	})
	event(EventGIDChange, 2)
	event(EventSMChange, 1)
	event(EventPortError, 1)
	event(EventGIDChange, 1)
	event(EventPortActive, 1)
	rounds := 0
	for now, err := range seq {
		require.NoError(t, err)
		rounds++
		require.EqualValues(t, rounds, now.Index)
		switch rounds {
		case 1:
			require.Empty(t, r.only(t).queue)
			event(EventGIDChange, 2)
			event(EventLIDChange, 1)
		case 2:
			event(EventGIDChange, 1)
			event(EventGIDChange, 1)
		case 3:
			cancel()
			event(EventGIDChange, 1)
		}
	}
	require.Equal(t, 3, rounds)
	require.Equal(t, 3, found)
	r.mu.Lock() // the end of ctx unsubscribes too
	require.Empty(t, r.subscribers)
	r.mu.Unlock()

	for range follow(ctx, r, e, nil, nil) { // over before it begins
		t.Error("an event after the end")
	}
	seq = follow(t.Context(), r, e, nil, nil)
	r.end()
	for range seq {
		t.Error("an event of a closed device")
	}
}

// TestFollowGIDInDoubt: a GID is looked up without an event if there is doubt, at most once in
// a while, and while it is gone; only what differs is yielded.
func TestFollowGIDInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAsyncReader()
		e := gidAt("10.0.0.1", GIDRoCEv2, 1, 3, 7)
		doubt := make(chan struct{}, 1)
		var mu sync.Mutex
		now, gone, found := e, false, 0
		var yielded []GIDEntry
		go func() {
			for e, err := range follow(t.Context(), r, e, doubt, func(GIDEntry) (GIDEntry, error) {
				mu.Lock()
				defer mu.Unlock()
				found++
				if gone {
					return GIDEntry{}, ErrNoGID
				}
				return now, nil
			}) {
				if err != nil {
					e = GIDEntry{}
				}
				yielded = append(yielded, e)
			}
		}()
		looks := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { found = 0 }()
			return found
		}
		ask := func() int {
			doubt <- struct{}{}
			return looks()
		}
		require.Zero(t, looks())
		require.Equal(t, 1, ask())
		require.Zero(t, ask(), "so soon")
		time.Sleep(lookPause)
		require.Equal(t, 1, looks())
		require.Empty(t, yielded, "nothing is new")

		time.Sleep(lookPause)
		mu.Lock()
		now.Index = 9
		mu.Unlock()
		require.Equal(t, 1, ask())
		require.Equal(t, []GIDEntry{now}, yielded)

		time.Sleep(lookPause)
		mu.Lock()
		gone = true
		mu.Unlock()
		require.Equal(t, 1, ask())
		require.Equal(t, []GIDEntry{now, {}}, yielded)
		time.Sleep(3 * gonePause)
		require.Equal(t, 3, looks())
		require.Len(t, yielded, 2)
		mu.Lock()
		gone = false
		mu.Unlock()
		time.Sleep(gonePause)
		require.Equal(t, 1, looks())
		require.Equal(t, []GIDEntry{now, {}, now}, yielded, "it is there again")
		time.Sleep(3 * gonePause)
		require.Zero(t, looks())

		r.publish(Event{Type: EventGIDChange, Port: 1})
		require.Equal(t, 1, looks())
		require.Equal(t, []GIDEntry{now, {}, now, now}, yielded, "an event is told of")
		r.end()
		synctest.Wait()
	})
}

// only is the reader's one subscriber.
func (r *asyncReader) only(t *testing.T) *subscriber {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.subscribers, 1)
	for s := range r.subscribers {
		return s
	}
	return nil
}
