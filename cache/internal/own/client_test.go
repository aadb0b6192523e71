package own

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMay(t *testing.T) {
	c := Client{Config: real}
	require.False(t, c.May(0, 1, 0), "it knows nothing")
	require.True(t, c.Listed(3, []uint32{5, 0}))
	require.False(t, c.May(0, 5, 0), "it has no grant")
	c.Heard(Grant{3, 2 * time.Hour, time.Hour}, 0, 0)
	require.True(t, c.May(0, 5, 0))
	require.False(t, c.May(0, 4, 0), "another epoch")
	require.False(t, c.May(1, 0, 0), "not in the list")
	require.False(t, c.May(2, 5, 0), "no shard")
	require.Equal(t, uint32(3), c.Version())
}

// A grant ends by the latest that the server's clock can show, which goes faster.
func TestGrantEnds(t *testing.T) {
	c := Client{Config: real}
	c.Listed(1, []uint32{5})
	c.Heard(Grant{1, 10001*time.Millisecond + 1, 0}, 1000*time.Millisecond, 1500*time.Millisecond)
	last := 1000*time.Millisecond + 10001*1023*time.Millisecond/1024
	require.True(t, c.May(0, 5, last-time.Millisecond))
	require.False(t, c.May(0, 5, last+time.Millisecond))
	require.InDelta(t, float64(time.Millisecond), float64(c.Remaining(last-time.Millisecond)), float64(10*time.Microsecond))

	exact := Client{Config: real}
	exact.Listed(1, []uint32{5})
	exact.Heard(Grant{1, 11, 10}, 0, 0)
	require.False(t, exact.May(0, 5, 0), "a nanosecond may have passed")
	exact.Heard(Grant{1, 12, 10}, 0, 0)
	require.True(t, exact.May(0, 5, 0))
}

// Without a reply nothing is known of the server's clock.
func TestUnasked(t *testing.T) {
	c := Client{Config: real}
	c.Listed(1, []uint32{5})
	c.Heard(Grant{1, time.Hour, time.Second}, -1, 0)
	require.False(t, c.May(0, 5, 0))
	require.Zero(t, c.Remaining(0))
	c.Heard(Grant{1, 0, time.Second}, 0, 0)
	require.True(t, c.May(0, 5, 0), "the later time counts")
}

// A better bound of the clock counts, a worse one does not, and one that is contradicted is dropped.
func TestClockBound(t *testing.T) {
	c := Client{Config: real}
	c.Listed(1, []uint32{5})
	until := 100 * time.Second
	c.Heard(Grant{1, until, 50 * time.Second}, 10*time.Second, 20*time.Second)
	require.InDelta(t, 40*time.Second, c.Remaining(20*time.Second), float64(20*time.Millisecond))
	c.Heard(Grant{1, until, 51 * time.Second}, 15*time.Second, 21*time.Second)
	require.InDelta(t, 43*time.Second, c.Remaining(21*time.Second), float64(20*time.Millisecond), "better")
	c.Heard(Grant{1, until, 51 * time.Second}, 14*time.Second, 21*time.Second)
	require.InDelta(t, 43*time.Second, c.Remaining(21*time.Second), float64(20*time.Millisecond), "worse")

	c.Heard(Grant{1, until, 70 * time.Second}, -1, 21*time.Second)
	require.False(t, c.May(0, 5, 21*time.Second), "the local clock has stood still")
	c.Heard(Grant{1, until, 71 * time.Second}, 21*time.Second, 22*time.Second)
	require.InDelta(t, 28*time.Second, c.Remaining(22*time.Second), float64(20*time.Millisecond))
	c.Heard(Grant{1, until, 90 * time.Second}, 20*time.Second, 23*time.Second)
	require.InDelta(t, 7*time.Second, c.Remaining(23*time.Second), float64(20*time.Millisecond), "contradicted by an answer")
}

// A grant of a list that the client does not have is no grant: the list may lack a shard.
func TestListAndGrant(t *testing.T) {
	c := Client{Config: real}
	c.Listed(2, []uint32{5})
	c.Heard(Grant{3, time.Hour, 0}, 0, 0)
	require.False(t, c.May(0, 5, 0))
	require.True(t, c.Listed(3, []uint32{0}))
	require.False(t, c.May(0, 5, 0))
	require.False(t, c.Listed(2, []uint32{5}), "it comes late")
	require.False(t, c.Listed(3, []uint32{5}), "and twice")
	c.Heard(Grant{2, time.Hour, 0}, 0, 0)
	require.False(t, c.May(0, 5, 0))
	c.Listed(4, []uint32{5})
	require.True(t, c.May(0, 5, 0), "a grant lasts over lists")
	c.Heard(Grant{4, time.Minute, 0}, 0, 0)
	require.True(t, c.May(0, 5, 2*time.Minute), "and does not shrink")
}

// A grant is for a second, and never after the deadline.
func TestGrant(t *testing.T) {
	s := newServing(t, lifeA, first(t))
	require.Equal(t, Grant{s.Version(), 5 * time.Second, 4 * time.Second}, s.Grant(1, 4*time.Second))
	require.Equal(t, Grant{s.Version(), lease, 10 * time.Second}, s.Grant(1, 10*time.Second))
	require.Equal(t, lease, s.Grant(1, time.Minute).Until)
}
