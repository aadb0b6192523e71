package srd

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/verbs"
)

// An address is decoded as it was encoded; anything else is refused.
func TestAddr(t *testing.T) {
	a := Addr{GID: verbs.GID{15: 3, 0: 9}, QPN: 0x123456, QKey: 0x80010203}
	b, err := a.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, b, AddrLen)
	var c Addr
	require.NoError(t, c.UnmarshalBinary(b))
	require.Equal(t, a, c)
	for i := range b {
		require.ErrorIs(t, c.UnmarshalBinary(b[:i]), verbs.ErrMessage)
	}
	require.ErrorIs(t, c.UnmarshalBinary(append(b, 0)), verbs.ErrMessage)
	for _, i := range []int{0, 1, 18} {
		bad := append([]byte(nil), b...)
		bad[i]++
		require.ErrorIs(t, c.UnmarshalBinary(bad), verbs.ErrMessage, "byte %d", i)
	}
	for text, want := range map[string]string{"10.77.0.2": "10.77.0.2/0x1f", "2001:db8::1": "2001:db8::1/0x1f"} {
		require.Equal(t, want, Addr{GID: verbs.GIDOf(netip.MustParseAddr(text)), QPN: 0x1f}.String())
	}
}

// What is gathered are the bytes from an offset on, whatever the pieces.
func TestGather(t *testing.T) {
	all := []byte("abcdefghij")
	for cut := range all {
		pieces := [][]byte{all[:cut], nil, all[cut : cut+(10-cut)/2], all[cut+(10-cut)/2:]}
		for offset := range all {
			for n := range 10 - offset + 1 {
				to := make([]byte, n)
				gather(to, pieces, offset)
				require.Equal(t, string(all[offset:offset+n]), string(to))
			}
		}
	}
}

// Memory of messages is bounded, and used again.
func TestPool(t *testing.T) {
	p := pool{budget: 1 << 16}
	var all [][]byte
	for {
		b := p.get(300)
		if b == nil {
			break
		}
		require.Len(t, b, 300)
		all = append(all, b)
	}
	require.Len(t, all, 128)
	require.EqualValues(t, 255, p.pressure())
	require.Nil(t, p.get(0))
	for _, b := range all {
		p.put(b)
	}
	require.Zero(t, p.used)
	require.Zero(t, testing.AllocsPerRun(10, func() { p.put(p.get(511)) }))
	require.Nil(t, p.get(1<<16+1))
	require.NotNil(t, p.get(1<<16))
}

// Memory may soon be there while messages that are not whole have it, and for a while after the
// program gave some back.
func TestMemoryMaySoonBeThere(t *testing.T) {
	p := pool{budget: 1 << 16, grace: time.Second}
	a, b := p.get(1<<15), p.get(1<<15)
	require.True(t, p.soon(1<<15, time.Minute), "a message has it that is not whole")
	m := p.lend(a)
	require.True(t, p.soon(1<<15, time.Hour))
	p.lend(b)
	require.False(t, p.soon(1<<15, time.Hour))
	p.takeBack(m, m.num)
	p.lend(p.get(1 << 15))
	require.True(t, p.soon(1<<15, time.Hour), "the program gives some back")
	require.True(t, p.soon(1<<15, time.Hour+time.Second-1))
	require.False(t, p.soon(1<<15, time.Hour+time.Second))
}

// What the pool has in use and keeps is at most its budget, whatever the lengths of messages
// are, and a message of any length up to the budget finds memory when nothing is in use.
func TestPoolKeepsItsBudget(t *testing.T) {
	p := pool{budget: 8_000_000}
	for n := 0; n <= p.budget; n = n*5/4 + 1 {
		var all [][]byte
		for len(all) < 1000 {
			b := p.get(n)
			if b == nil {
				break
			}
			require.Len(t, b, n)
			all = append(all, b)
		}
		require.NotEmpty(t, all, "%d bytes", n)
		require.GreaterOrEqual(t, 9*(len(all)+1)*max(n, smallestPiece)/8, min(p.budget, 1000*n), "%d bytes", n)
		for _, b := range all {
			p.put(b)
		}
		kept := 0
		for c, l := range p.free {
			for _, b := range l {
				require.Equal(t, c, class(p.size(cap(b))), "%d bytes", cap(b))
				kept += cap(b)
			}
		}
		require.Equal(t, p.kept, kept)
		require.LessOrEqual(t, kept, p.budget)
		require.Zero(t, p.used)
	}
	require.Len(t, p.get(p.budget), p.budget)
	require.Nil(t, p.get(p.budget+1))
	require.Nil(t, p.get(1<<40))
}

// A program that reslices a message past what it has read gives all of its memory back.
func TestReleaseOfARest(t *testing.T) {
	ep := &Endpoint{pool: pool{budget: 1 << 20}}
	h := (*host)(ep)
	for _, n := range []int{256, 100_000} {
		require.True(t, h.Deliver(&engine.Delivery{Bytes: make([]byte, n)}, false))
		m := ep.inbox.pop()
		require.Len(t, m.Data, n)
		m.Data = m.Data[n*3/4:]
		ms := []Message{m}
		ep.Release(ms...)
		require.Nil(t, ms[0].Data)
		require.Zero(t, ep.pool.used)
		ep.Release(ms...)
		require.Zero(t, ep.pool.used)
		require.Len(t, ep.pool.get(n), n)
		ep.pool.used = 0
	}
	ep.Release(Message{Data: make([]byte, 300)})
	require.Zero(t, ep.pool.used, "it was none that arrived")
}

// A ring hands out what was put in, in order.
func TestRing(t *testing.T) {
	var r ring[int]
	next, want := 0, 0
	for round := range 50 {
		for range round {
			r.push(next)
			next++
		}
		for range round / 2 {
			require.Equal(t, want, r.pop())
			want++
		}
	}
	require.Equal(t, next-want, r.n)
}
