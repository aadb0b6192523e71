package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newBroker(lists int) *Broker {
	var word uint64
	return New(Config{Lists: lists, Timeout: time.Second, MinPause: time.Millisecond, MaxPause: 8 * time.Millisecond, Eager: 2, MaxRun: 5 * time.Second, Gap: 5 * time.Millisecond, MaxReserved: 3,
		Word: func() uint64 { word++; return 1<<63 | word }})
}

// took takes the only list.
func took(t *testing.T, b *Broker) List {
	t.Helper()
	require.Len(t, b.Lists, 1)
	l := b.Lists[0]
	b.Lists = b.Lists[:0]
	return l
}

func nextReply(t *testing.T, b *Broker) Reply {
	t.Helper()
	require.Len(t, b.Replies, 1)
	a := b.Replies[0]
	b.Replies = b.Replies[:0]
	return a
}

func TestTurnsFollowEachOther(t *testing.T) {
	b := newBroker(4)
	first, second := Ask{1, 10}, Ask{2, 20}
	b.Ask(0, 7, first)
	l := took(t, b)
	require.Equal(t, 1, l.N)
	require.Zero(t, l.Ops[0].Compare)
	b.Ask(0, 7, second)
	require.Empty(t, b.Lists, "one list of a slot at a time")
	b.Result(0, l.Index, []uint64{0})
	a := nextReply(t, b)
	require.Equal(t, Reply{first, 7, l.Ops[0].Swap}, a)
	require.Empty(t, b.Lists, "the first one is at it")
	b.Done(0, 7, Ask{9, 9})
	l = took(t, b)
	require.Equal(t, 1, l.N, "of nobody who has a reservation")
	b.Result(0, l.Index, []uint64{a.Word})
	require.Empty(t, b.Replies)

	b.Done(0, 7, first)
	l = took(t, b)
	require.Equal(t, CmpSwap{a.Word, 0}, l.Ops[0], "it may not have come at all")
	require.Zero(t, l.Ops[1].Compare)
	require.NotEqual(t, a.Word, l.Ops[1].Swap)
	b.Result(0, l.Index, []uint64{0, 0})
	require.Equal(t, second, nextReply(t, b).Ask)
	b.Done(0, 7, second)
	l = took(t, b)
	require.Equal(t, 1, l.N)
	b.Result(0, l.Index, []uint64{0})
	require.True(t, b.Idle())
	require.EqualValues(t, 2, b.Reserved)
	require.Zero(t, b.Lapsed)
}

// A word that others hold is tried again after pauses that grow, and at once when
// something is heard.
func TestWordThatIsHeld(t *testing.T) {
	b := newBroker(4)
	b.Ask(0, 1, Ask{1, 1})
	var now time.Duration
	for _, pause := range []time.Duration{1, 2, 4, 8, 8} {
		b.Result(now, took(t, b).Index, []uint64{99})
		require.Equal(t, now+pause*time.Millisecond, b.Alarm())
		b.Turn(b.Alarm() - 1)
		require.Empty(t, b.Lists)
		now = b.Alarm()
		b.Turn(now)
	}
	b.Result(now, took(t, b).Index, []uint64{99})
	b.Done(now, 1, Ask{5, 5}) // of a client that has lost its reservation
	l := took(t, b)
	b.Done(now, 1, Ask{6, 6}) // while that is under way
	b.Result(now, l.Index, []uint64{99})
	b.Result(now, took(t, b).Index, []uint64{0})
	require.Equal(t, Ask{1, 1}, nextReply(t, b).Ask)
}

// A client may say that it is done before it is seen to be.
func TestUnlockOnItsWay(t *testing.T) {
	b := newBroker(4)
	b.Ask(0, 1, Ask{1, 1})
	b.Result(0, took(t, b).Index, []uint64{0})
	b.Replies = b.Replies[:0]
	b.Ask(0, 1, Ask{2, 2})
	b.Done(0, 1, Ask{1, 1})
	b.Result(0, took(t, b).Index, []uint64{77, 77})
	b.Result(0, took(t, b).Index, []uint64{77})
	b.Result(0, took(t, b).Index, []uint64{77})
	require.Empty(t, b.Lists, "it takes longer")
	require.Less(t, b.Alarm(), time.Second)
	for len(b.Lists) == 0 { // an alarm may be of something that is over
		b.Turn(b.Alarm())
	}
	b.Result(b.Alarm(), took(t, b).Index, []uint64{0})
	require.Equal(t, Ask{2, 2}, nextReply(t, b).Ask)
}

// A client that does not come keeps the others waiting for the reservation timeout.
func TestReservationLapses(t *testing.T) {
	b := newBroker(4)
	b.Ask(0, 1, Ask{1, 1})
	l := took(t, b)
	b.Result(0, l.Index, []uint64{0})
	word := nextReply(t, b).Word
	require.Equal(t, time.Second, b.Alarm(), "nobody waits")
	b.Turn(time.Second)
	l = took(t, b)
	require.Equal(t, []CmpSwap{{word, 0}}, l.Ops[:l.N])
	b.Ask(time.Second, 1, Ask{2, 2})
	b.Result(time.Second, l.Index, []uint64{word})
	require.EqualValues(t, 1, b.Lapsed)
	b.Result(time.Second, took(t, b).Index, []uint64{0})
	require.Equal(t, Ask{2, 2}, nextReply(t, b).Ask)

	b.Turn(2 * time.Second)
	l = took(t, b)
	b.Result(2*time.Second, l.Index, []uint64{77}) // it holds the lock all this time
	require.EqualValues(t, 1, b.Lapsed)
	require.True(t, b.Idle())
}

func TestRequestsTakenBack(t *testing.T) {
	b := newBroker(4)
	b.Ask(0, 1, Ask{1, 1})
	b.Ask(0, 1, Ask{2, 2})
	b.Ask(0, 1, Ask{3, 3})
	l := took(t, b)
	b.Done(0, 1, Ask{1, 1})
	require.Equal(t, Reply{Ask{1, 1}, 1, 0}, nextReply(t, b), "also the first one, while a list is under way for it")
	b.Forget(0, 2)
	b.Result(0, l.Index, []uint64{0})
	require.Equal(t, Ask{3, 3}, nextReply(t, b).Ask)
	b.Forget(0, 3)
	l = took(t, b)
	b.Result(0, l.Index, []uint64{l.Ops[0].Compare})
	require.True(t, b.Idle())

	b.Ask(0, 1, Ask{1, 2})
	l = took(t, b)
	b.Forget(0, 1)
	b.Result(0, l.Index, []uint64{0})
	back := took(t, b)
	require.Equal(t, []CmpSwap{{l.Ops[0].Swap, 0}}, back.Ops[:back.N], "nobody is left for it")
	b.Result(0, back.Index, []uint64{back.Ops[0].Compare})
	require.True(t, b.Idle())
	require.Empty(t, b.Replies)
}

func TestShut(t *testing.T) {
	b := newBroker(4)
	b.Ask(0, 1, Ask{1, 1})
	b.Result(0, took(t, b).Index, []uint64{0})
	word := nextReply(t, b).Word
	b.Ask(0, 1, Ask{2, 2})
	b.Shut(0)
	require.Equal(t, Reply{Ask{2, 2}, 1, 0}, nextReply(t, b))
	l := took(t, b)
	require.Equal(t, []CmpSwap{{word, 0}}, l.Ops[:l.N])
	b.Result(0, l.Index, []uint64{word})
	require.True(t, b.Idle())
	b.Ask(0, 1, Ask{3, 3})
	require.Equal(t, Reply{Ask{3, 3}, 1, 0}, nextReply(t, b))
	require.True(t, b.Idle())
}

// More slots than lists: all have their turn.
func TestListsRunShort(t *testing.T) {
	b := newBroker(1)
	for n := range uint32(4) {
		b.Ask(0, n, Ask{1, uint64(n)})
	}
	b.Done(0, 1, Ask{1, 1}) // needs nothing any more when its list would come
	require.Len(t, b.Replies, 1)
	b.Replies = b.Replies[:0]
	for _, n := range []uint32{0, 2, 3} {
		l := took(t, b)
		require.Equal(t, n, l.Slot)
		b.Result(0, l.Index, []uint64{0})
		require.EqualValues(t, n, nextReply(t, b).Slot)
	}
	require.Empty(t, b.Lists)
}

// Clients that ask again at once keep a word busy. One that takes it without asking, and
// looks once in a gap, gets it.
func TestWordIsLetGo(t *testing.T) {
	b := newBroker(4)
	b.cfg.MaxRun = 100 * time.Millisecond
	const hold, every = 300 * time.Microsecond, 3 * time.Millisecond
	var word, seq uint64
	var holder Ask
	var until, since, longest time.Duration
	got := 0
	for n := range int32(3) {
		seq++
		b.Ask(0, 1, Ask{n, seq})
	}
	for now := time.Duration(0); now < time.Second; now += 50 * time.Microsecond {
		switch {
		case word == 99 && now >= until: // that one
			word = 0
		case holder.Seq != 0 && now >= until:
			word = 0
			b.Done(now, 1, holder)
			seq++
			b.Ask(now, 1, Ask{holder.Peer, seq})
			holder = Ask{}
		case now%every == every-50*time.Microsecond && word == 0:
			word, until = 99, now+hold
			longest, since = max(longest, now-since), now
			got++
		}
		if now >= b.Alarm() {
			b.Turn(now)
		}
		for len(b.Lists) > 0 {
			l := b.Lists[0]
			b.Lists = b.Lists[1:]
			var old []uint64
			for _, o := range l.Ops[:l.N] {
				old = append(old, word)
				if word == o.Compare {
					word = o.Swap
				}
			}
			b.Result(now, l.Index, old)
		}
		for _, a := range b.Replies {
			require.Equal(t, word, a.Word)
			word, holder, until = 1000+a.Seq, a.Ask, now+hold
		}
		b.Replies = b.Replies[:0]
	}
	require.Greater(t, got, 7)
	require.Less(t, longest, 100*time.Millisecond+2*5*time.Millisecond)
	require.Greater(t, b.Reserved, uint64(2000), "and the others hardly notice")
}

// A peer that asks for turn after turn, and takes none, has as many words reserved as the
// broker allows: until its reservations end, however they do.
func TestReservationsOfOnePeer(t *testing.T) {
	b := newBroker(4)
	grant := func(n uint32, peer int32) {
		b.Ask(0, n, Ask{peer, uint64(n)})
		l := took(t, b)
		b.Result(0, l.Index, []uint64{0})
		require.NotZero(t, nextReply(t, b).Word)
	}
	refused := func(now time.Duration) {
		b.Ask(now, 99, Ask{1, 99})
		require.Zero(t, nextReply(t, b).Word)
		require.Empty(t, b.Lists)
	}
	for n := range uint32(3) {
		grant(n, 1)
	}
	refused(0)
	grant(10, 2)

	b.Done(0, 0, Ask{1, 0})
	l := took(t, b)
	refused(0) // until the word is seen to be free
	b.Result(0, l.Index, []uint64{0})
	grant(3, 1)
	refused(0)

	// The word of a client that is done is free, and another's at once.
	b.Ask(0, 1, Ask{2, 50})
	b.Done(0, 1, Ask{1, 1})
	b.Result(0, took(t, b).Index, []uint64{0, 0})
	require.EqualValues(t, 2, nextReply(t, b).Peer)
	grant(4, 1)
	refused(0)

	// A client took the lock in turn, and says nothing when it is free.
	b.Ask(0, 3, Ask{2, 51})
	b.Turn(b.Alarm())
	b.Result(0, took(t, b).Index, []uint64{0})
	require.EqualValues(t, 2, nextReply(t, b).Peer)
	grant(5, 1)
	refused(0)

	b.Turn(time.Second) // their time is over
	for len(b.Lists) > 0 {
		l := b.Lists[0]
		b.Lists = b.Lists[1:]
		b.Result(time.Second, l.Index, []uint64{l.Ops[0].Compare})
	}
	require.True(t, b.Idle())
	require.Empty(t, b.has)
}
