package dci

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// end completes the request at a place of the ring of a DCI.
func end(t *testing.T, c *Machine, d *DCI, at int, failed bool) {
	t.Helper()
	_, ok := c.Completed(uint64(d.Index)<<placeBits|uint64(at), failed)
	require.True(t, ok)
}

// taken returns the kinds of the actions since the last call, and the actions.
func taken(c *Machine) (kinds []ActionKind, all []Action) {
	all, c.Actions = c.Actions, nil
	for _, a := range all {
		kinds = append(kinds, a.Kind)
	}
	return kinds, all
}

// TestStreamRecovers: a stream with a failed request is reset when nothing is in it, which is
// one failure, however many requests were flushed. Its target goes on there.
func TestStreamRecovers(t *testing.T) {
	c := New(1, 2, 8, 4)
	d := &c.DCIs[0]
	p, q := &Peer{}, &Peer{}
	posted(t, c, p, 3)
	posted(t, c, q, 1)
	end(t, c, d, 0, true)
	kinds, check := taken(c)
	require.Equal(t, []ActionKind{Check}, kinds)
	end(t, c, d, 1, true)
	c.Checked(check[0], false)
	require.Empty(t, c.Actions)
	require.True(t, d.Ready(), "the other stream works")
	end(t, c, d, 2, true)
	kinds, resets := taken(c)
	require.Equal(t, []ActionKind{ResetStream}, kinds)
	require.Equal(t, 0, resets[0].Stream)
	require.EqualValues(t, 1, c.Stats.Failures)
	require.True(t, c.Place(p))
	require.Equal(t, q.Stream(), p.Stream(), "until then it goes there")
	c.Settle(p)
	c.StreamReset(resets[0], nil)
	require.Empty(t, c.Actions)
	posted(t, c, p, 1)
	require.Zero(t, p.Stream())
}

// TestStreamIsNotReset: then the DCI is in error, and what was asked about it before its
// recovery means nothing afterwards.
func TestStreamIsNotReset(t *testing.T) {
	c := New(1, 2, 8, 4)
	d := &c.DCIs[0]
	p := &Peer{}
	posted(t, c, p, 1)
	end(t, c, d, 0, true)
	kinds, asked := taken(c)
	require.Equal(t, []ActionKind{Check, ResetStream}, kinds)
	c.StreamReset(asked[1], errors.New("no reset"))
	kinds, _ = taken(c)
	require.Equal(t, []ActionKind{Abort, Recover}, kinds)
	require.EqualValues(t, 2, c.Stats.Failures)
	c.Checked(asked[0], true)
	require.Empty(t, c.Actions, "that is known")
	c.Recovered(d, nil)
	c.Checked(asked[0], true)
	require.Empty(t, c.Actions)
	require.True(t, d.Ready())
	posted(t, c, p, 1)
	end(t, c, d, 1, true)
	_, asked = taken(c)
	c.Checked(asked[0], true)
	kinds, _ = taken(c)
	require.Equal(t, []ActionKind{Abort}, kinds, "what was asked since means something")
}

// TestRecoveryWaits for the requests in the DCI, and for the reset of a stream, whatever its
// result.
func TestRecoveryWaits(t *testing.T) {
	for _, result := range []error{nil, errors.New("the DCI is in error")} {
		c := New(1, 2, 8, 4)
		d := &c.DCIs[0]
		p, q := &Peer{}, &Peer{}
		posted(t, c, p, 1)
		posted(t, c, q, 2)
		end(t, c, d, 0, true)
		_, asked := taken(c)
		c.Checked(asked[0], true)
		c.Checked(asked[0], true)
		kinds, _ := taken(c)
		require.Equal(t, []ActionKind{Abort}, kinds)
		end(t, c, d, 1, true)
		end(t, c, d, 2, true)
		require.Empty(t, c.Actions)
		c.StreamReset(asked[1], result)
		kinds, _ = taken(c)
		require.Equal(t, []ActionKind{Recover}, kinds)
		c.Recovered(d, nil)
		posted(t, c, p, 1)
		posted(t, c, q, 1)
	}
}

// TestLost: requests that wait for the last DCI are given up when that cannot be brought
// back, with the reason, and no target finds a place any more.
func TestLost(t *testing.T) {
	why := errors.New("no way back")
	c := New(2, 1, 2, 4)
	p, q := &Peer{}, &Peer{}
	fail := func(d *DCI) {
		require.True(t, c.Usable())
		posted(t, c, p, 2)
		require.Same(t, d, p.DCI())
		c.Enqueue(p, 3)
		end(t, c, d, 0, true)
		end(t, c, d, 1, true)
		kinds, _ := taken(c)
		require.Equal(t, []ActionKind{Abort, Recover}, kinds)
	}
	fail(&c.DCIs[0])
	require.Same(t, &c.DCIs[1], p.DCI(), "that works")
	c.Withdraw(p, 3)
	c.Recovered(&c.DCIs[0], errors.New("another reason"))
	fail(&c.DCIs[1])
	require.True(t, c.Place(q))
	c.Enqueue(q, 1)
	c.Recovered(&c.DCIs[1], why)
	kinds, actions := taken(c)
	require.Equal(t, []ActionKind{GiveUp, GiveUp}, kinds)
	for k, to := range []*Peer{p, q} {
		require.Same(t, to, actions[k].Peer)
		require.Equal(t, why, actions[k].Err)
		require.Nil(t, to.DCI())
		require.Zero(t, to.Pending())
	}
	require.False(t, c.Usable())
	require.ErrorIs(t, c.Lost(), ErrLost)
	require.ErrorIs(t, c.Lost(), why)
	require.False(t, c.Place(p))
	require.False(t, c.Waiting())
	require.Zero(t, c.Live())
}

// TestWaiting: requests wait for which there is room only at a DCI that works and has some.
func TestWaiting(t *testing.T) {
	c := New(2, 1, 2, 4)
	p := &Peer{}
	posted(t, c, p, 2)
	d := p.DCI()
	require.False(t, c.Waiting())
	c.Enqueue(p, 1)
	require.EqualValues(t, 1, c.Stats.Waits)
	c.Enqueue(p, 1)
	require.EqualValues(t, 1, c.Stats.Waits, "it waits already")
	require.False(t, c.Waiting(), "the other DCI has room")
	end(t, c, d, 0, false)
	require.True(t, c.Waiting())

	c, p = New(1, 1, 2, 4), &Peer{}
	d = &c.DCIs[0]
	posted(t, c, p, 1)
	c.Enqueue(p, 1)
	require.True(t, c.Waiting())
	end(t, c, d, 0, true)
	require.False(t, c.Waiting(), "it is in error")
	none, _ := c.Turn(d)
	require.Nil(t, none)
	c.Recovered(d, nil)
	require.True(t, c.Waiting())
}

// TestAbortOfTheUnwanted: a DCI is taken down for requests that are not wanted alone, neither
// for those that failed nor for those that are posted later.
func TestAbortOfTheUnwanted(t *testing.T) {
	c := New(1, 2, 8, 4)
	d := &c.DCIs[0]
	p, q := &Peer{}, &Peer{}
	require.True(t, c.Place(p))
	c.Abort(p)
	require.Empty(t, c.Actions, "nothing is under way")
	posted(t, c, p, 2)
	posted(t, c, q, 1)
	end(t, c, d, 0, true)
	c.Abort(q)
	kinds, _ := taken(c)
	require.Equal(t, []ActionKind{Check}, kinds, "one has failed, the other one is wanted")

	c, p, q = New(1, 1, 8, 4), &Peer{}, &Peer{}
	d = &c.DCIs[0]
	posted(t, c, p, 1)
	posted(t, c, q, 1)
	c.Abort(p)
	end(t, c, d, 0, true)
	end(t, c, d, 1, true)
	c.Recovered(d, nil)
	posted(t, c, p, 1)
	posted(t, c, q, 1)
	c.Actions = nil
	c.Abort(q)
	require.Empty(t, c.Actions)
}
