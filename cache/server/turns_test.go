package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// waitingClient is a client that waits.
type waitingClient func() error

func (p waitingClient) Wait() error { return p() }
func (p waitingClient) Attend(ctx context.Context, f func(context.Context) error) error {
	return f(ctx)
}

var quietly = waitingClient(func() error { return nil })

// So many have their turn at a time, in the order in which they came. A turn that is ended twice makes
// room once.
func TestTurns(t *testing.T) {
	q := newTurns(2)
	var all []*turn
	for range 6 {
		all = append(all, q.ask("shop"))
	}
	begun := func() (which []int) {
		for i, t := range all {
			select {
			case <-t.begun:
				which = append(which, i)
			default:
			}
		}
		return which
	}
	require.Equal(t, []int{0, 1}, begun())
	all[1].over()
	all[1].over()
	require.Equal(t, []int{0, 1, 2}, begun())
	all[3].over() // it gives up before it begins
	require.Equal(t, []int{0, 1, 2}, begun())
	all[0].over()
	all[2].over()
	require.Equal(t, []int{0, 1, 2, 4, 5}, begun())
	all[4].over()
	all[5].over()
	require.Zero(t, q.given)
	require.Empty(t, q.waiting)
	(*turn)(nil).over()
	require.GreaterOrEqual(t, atOnce(), 4)
	require.Empty(t, q.each)
}

// A tenant without a turn has one at once, however many clients of others wait or are silent during their
// turns. The next turn goes to the tenant with the fewest.
func TestTurnsOfTenants(t *testing.T) {
	q := newTurns(2)
	var flood []*turn
	for range 100 {
		flood = append(flood, q.ask("flood"))
	}
	begun := func(t *turn) bool {
		select {
		case <-t.begun:
			return true
		default:
			return false
		}
	}
	first, second, third := q.ask("shop"), q.ask("shop"), q.ask("mail")
	require.True(t, begun(flood[1]) && !begun(flood[2]))
	require.True(t, begun(first))
	require.True(t, begun(third))
	require.False(t, begun(second), "its tenant has a turn")
	third.over()
	flood[0].over()
	require.False(t, begun(second) || begun(flood[2]), "there are two turns")
	flood[1].over()
	require.True(t, begun(flood[2]), "its tenant has none")
	first.over()
	require.True(t, begun(second))
	more := q.ask("shop")
	flood[2].over()
	require.True(t, begun(flood[3]))
	flood[3].over()
	flood[4].over()
	require.True(t, begun(flood[5]) && !begun(more))
	q.most = 3
	flood[6].over() // which waits
	other := q.ask("mail")
	require.True(t, begun(other))
	other.over()
	require.True(t, begun(flood[7]) && !begun(more), "as many, and it came first")
	second.over()
	require.True(t, begun(more) && !begun(flood[8]), "it has the fewest")
}

// A waiting client is told so soon, and then each second, and gives up with its context, or when it cannot be told.
func TestWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1)
		first, err := q.take(t.Context(), "shop", quietly)
		require.NoError(t, err)
		for long, want := range map[time.Duration]int{briefly + 1: 1, 2500 * time.Millisecond: 3} {
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			told := 0
			_, err = q.take(ctx, "shop", waitingClient(func() error { told++; return nil }))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, want, told, long)
		}
		gone := errors.New("it has gone")
		_, err = q.take(t.Context(), "shop", waitingClient(func() error { return gone }))
		require.ErrorIs(t, err, gone)
		require.Empty(t, q.waiting)
		first.over()
	})
}

// A turn that does not end keeps others waiting for no longer than its time.
func TestLongTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(1)
		begin := time.Now()
		_, err := q.take(t.Context(), "shop", quietly)
		require.NoError(t, err)
		next, err := q.take(t.Context(), "shop", quietly)
		require.NoError(t, err)
		require.Equal(t, longTurn, time.Since(begin))
		next.over()
		time.Sleep(2 * longTurn)
		require.Zero(t, q.given)
	})
}

// A turn ends when its client's connection closes, or when it is not let in, and so does its place.
func TestTurnsEnd(t *testing.T) {
	s := bare(&net.TCPAddr{}, Config{MaxClients: 3, Key: []byte("a key")})
	q := newTurns(10)
	conn, far := net.Pipe()
	defer far.Close()
	clients := byte(0)
	comes := func() *admitted {
		clients++
		c := &admitted{Conn: conn, by: greet.RDMA}
		require.NoError(t, s.reserve(c, [16]byte{clients}))
		c.connects = q.ask("")
		return c
	}
	let := func() net.Conn {
		var c net.Conn
		in := make(chan struct{})
		go func() { defer close(in); c = <-s.links.conns }()
		require.True(t, s.admit(comes()))
		<-in
		return c
	}
	a, b, c := let(), let(), let()
	require.Equal(t, greet.ErrFull, s.reserve(&admitted{}, [16]byte{}))
	for range maxConns - 1 {
		again := &admitted{Conn: conn}
		require.NoError(t, s.reserve(again, [16]byte{1}), "it is there already")
		defer again.Close()
	}
	require.Equal(t, greet.ErrFull, s.reserve(&admitted{}, [16]byte{1}))
	require.Equal(t, 3, q.given)
	require.NoError(t, a.Close())
	require.Equal(t, 2, q.given)
	require.NoError(t, a.Close())
	require.Equal(t, []int{2, 3}, []int{q.given, len(s.places)})
	b.(*admitted).connects.over() // it has connected
	require.Equal(t, []int{1, 3}, []int{q.given, len(s.places)})
	require.NoError(t, b.Close())
	require.Equal(t, 1, q.given)
	require.NoError(t, c.Close())
	require.Zero(t, q.given)
	d := comes()
	require.NoError(t, s.Close())
	require.False(t, s.admit(d), "it is closed")
	require.NoError(t, d.Close())
	require.Equal(t, []int{0, 1}, []int{q.given, len(s.places)})
	require.Equal(t, ErrClosed, s.reserve(&admitted{}, [16]byte{}))
	open := bare(&net.TCPAddr{}, Config{MaxClients: 1})
	for range 10 {
		require.NoError(t, open.reserve(&admitted{}, [16]byte{}), "without a key there is no limit")
	}
	require.NoError(t, open.Close())
}
