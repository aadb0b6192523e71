package dci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// posted brings n requests of a peer to the device.
func posted(t *testing.T, c *Machine, p *Peer, n int) {
	t.Helper()
	require.True(t, c.Place(p))
	require.Equal(t, n, c.Admit(p, n))
	for range n {
		c.Posted(p)
	}
}

// TestPlaces: a target goes to the DCI with the fewest requests among those that work,
// and there to the stream with the fewest targets among those that work.
func TestPlaces(t *testing.T) {
	c := New(2, 2, 8, 4)
	var p [6]Peer
	posted(t, c, &p[0], 2)
	posted(t, c, &p[1], 1)
	require.NotSame(t, p[0].DCI(), p[1].DCI())
	posted(t, c, &p[2], 1)
	require.Same(t, p[1].DCI(), p[2].DCI(), "fewer requests")
	require.NotEqual(t, p[1].Stream(), p[2].Stream())
	posted(t, c, &p[3], 3)
	require.Same(t, p[0].DCI(), p[3].DCI(), "as many requests, and fewer targets")

	// A stream in error takes no peer, nor does a DCI in error.
	d := p[1].DCI()
	_, ok := c.Completed(uint64(d.Index)<<placeBits, true)
	require.True(t, ok)
	require.True(t, c.Place(&p[4]))
	require.Same(t, d, p[4].DCI())
	require.Equal(t, p[2].Stream(), p[4].Stream(), "more targets, and works")
	c.Checked(c.Actions[0], true)
	require.True(t, c.Place(&p[5]))
	require.NotSame(t, d, p[5].DCI(), "more requests, and works")
}

// TestPlacesAgain: a target goes back to the DCI that it had, unless others have requests there or
// its first stream is in error.
func TestPlacesAgain(t *testing.T) {
	c := New(3, 2, 8, 4)
	var p, q, r Peer
	end := func(d *DCI, at int, failed bool) {
		_, ok := c.Completed(uint64(d.Index)<<placeBits|uint64(at), failed)
		require.True(t, ok)
	}
	posted(t, c, &p, 1)
	posted(t, c, &q, 1)
	first, second := p.DCI(), q.DCI()
	require.NotSame(t, first, second)
	end(first, 0, false)
	require.Nil(t, p.DCI())
	end(second, 0, false)
	posted(t, c, &q, 1)
	require.Same(t, second, q.DCI())
	end(second, 1, false)
	r.last = second
	posted(t, c, &r, 1)
	require.Same(t, second, r.DCI())
	require.EqualValues(t, 4, c.Stats.Attaches)
	posted(t, c, &q, 1)
	require.NotSame(t, second, q.DCI(), "another target has requests there")
	stream := r.Stream()
	end(second, 2, true)
	require.True(t, c.Place(&r))
	require.False(t, r.DCI() == second && r.Stream() == stream, "it is in error")
}

// TestTurns: targets that wait for one DCI take turns of the quota. If it breaks down,
// those that have nothing in it go elsewhere, and the others when they have not.
func TestTurns(t *testing.T) {
	c := New(2, 1, 4, 2)
	var other, p, q, r Peer
	posted(t, c, &other, 4)
	d := &c.DCIs[1]
	posted(t, c, &p, 2)
	require.Same(t, d, p.DCI())
	c.Enqueue(&p, 5)
	other.dci.pending += 100 // no peer goes there
	for _, x := range []*Peer{&q, &r} {
		require.True(t, c.Place(x))
		require.Same(t, d, x.DCI())
		c.Enqueue(x, 3)
	}
	turn := func(want *Peer, n int) {
		t.Helper()
		got, m := c.Turn(d)
		require.Same(t, want, got)
		require.Equal(t, n, m)
		for range m {
			c.Posted(got)
		}
	}
	done := func(k uint64) {
		_, ok := c.Completed(uint64(d.Index)<<placeBits|k, false)
		require.True(t, ok)
	}
	turn(&p, 2)
	none, _ := c.Turn(d)
	require.Nil(t, none, "no room")
	require.False(t, c.Waiting())
	done(0)
	done(1)
	require.True(t, c.Waiting())
	turn(&q, 2)
	done(2)
	done(3)
	turn(&r, 2)
	done(4)
	done(5)
	require.Zero(t, q.Outstanding())
	turn(&p, 2)
	other.dci.pending -= 100
	_, ok := c.Completed(uint64(d.Index)<<placeBits|6, true)
	require.True(t, ok)
	require.NotSame(t, d, q.DCI(), "it has nothing there")
	require.Same(t, d, r.DCI())
	for k := range uint64(3) {
		_, ok := c.Completed(uint64(d.Index)<<placeBits|(7+k), true)
		require.True(t, ok)
	}
	require.NotSame(t, d, r.DCI())
	require.NotSame(t, d, p.DCI())
}

// TestQuota: a peer that waits alone takes all the room, and one that does not its quota.
func TestQuota(t *testing.T) {
	c := New(1, 1, 8, 2)
	var p, q Peer
	posted(t, c, &p, 1)
	c.Enqueue(&p, 6)
	require.True(t, c.Place(&q))
	c.Enqueue(&q, 1)
	for _, want := range []struct {
		p *Peer
		n int
	}{{&p, 2}, {&q, 1}, {&p, 4}, {nil, 0}} {
		got, n := c.Turn(&c.DCIs[0])
		require.Same(t, want.p, got)
		require.Equal(t, want.n, n)
		for range n {
			c.Posted(got)
		}
	}
}

// TestKeepsItsPlace: a target that has anything to do stays where it is, and attaches anew
// only after that.
func TestKeepsItsPlace(t *testing.T) {
	c := New(2, 1, 2, 4)
	p := &Peer{}
	require.True(t, c.Place(p))
	c.Settle(p)
	require.Nil(t, p.DCI())
	c.Settle(p)
	posted(t, c, p, 2)
	d := p.DCI()
	c.Settle(p)
	c.Enqueue(p, 2)
	end(t, c, d, 0, false)
	end(t, c, d, 1, false)
	c.Settle(p)
	require.Same(t, d, p.DCI())
	require.Equal(t, 1, c.Live())
	next, n := c.Turn(d)
	require.Same(t, p, next)
	require.Equal(t, 2, n)
	c.Posted(p)
	c.Posted(p)
	require.Equal(t, 2, p.Outstanding())
	require.EqualValues(t, 2, p.Attaches)
	require.EqualValues(t, 2, c.Stats.Attaches)
	end(t, c, d, 2, false)
	end(t, c, d, 3, false)
	require.Zero(t, c.Live())
}

// TestPlacesElsewhere: a target does not go back to a DCI that is in error.
func TestPlacesElsewhere(t *testing.T) {
	c := New(2, 1, 2, 4)
	p := &Peer{}
	posted(t, c, p, 1)
	d := p.DCI()
	end(t, c, d, 0, true)
	posted(t, c, p, 1)
	require.NotSame(t, d, p.DCI())
}

// TestNumbers: a number means one request, from its posting until its completion, also when
// the places have been used so often that numbers begin anew.
func TestNumbers(t *testing.T) {
	for _, begin := range []uint64{0, 1<<placeBits - 2} {
		c := New(2, 1, 4, 4)
		p := &Peer{}
		d := &c.DCIs[0]
		d.head, d.tail = begin, begin
		numbers := []uint64{d.Number(0), d.Number(1), d.Number(2), d.Number(3)}
		require.Equal(t, uint32(begin+3), d.Position(3))
		require.False(t, c.Has(numbers[0]))
		posted(t, c, p, 3)
		require.True(t, c.Has(numbers[0]))
		require.True(t, c.Has(numbers[2]))
		for _, number := range []uint64{numbers[3], uint64(uint32(numbers[0] - 1)), 1<<placeBits | numbers[0], 2<<placeBits | numbers[0]} {
			require.False(t, c.Has(number), "%x", number)
			_, ok := c.Completed(number, false)
			require.False(t, ok, "%x", number)
		}
		for _, v := range []struct{ k, room int }{{1, 1}, {2, 1}, {0, 4}} {
			by, ok := c.Completed(numbers[v.k], false)
			require.True(t, ok)
			require.Same(t, p, by)
			require.Equal(t, v.room, d.room(), "places are free in their order")
			_, ok = c.Completed(numbers[v.k], false)
			require.False(t, ok, "twice")
		}
	}
}
