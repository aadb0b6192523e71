package cache

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/mirror"
)

// lookedAt is a context that ends when it has been looked at so often, or after a moment.
type lookedAt struct {
	context.Context
	end  context.CancelFunc
	left int
}

func endsAfter(looks int) *lookedAt {
	ctx, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
	return &lookedAt{ctx, end, looks}
}

func (c *lookedAt) look() {
	if c.left--; c.left < 0 {
		c.end()
	}
}

func (c *lookedAt) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *lookedAt) Err() error {
	c.look()
	return c.Context.Err()
}

// The outcome of a change is unknown when it may have been sent, and not otherwise, whenever its context
// ends: before the change is begun, while it waits for room, or while its reply is waited for.
func TestUnknownIsWhatWasSent(t *testing.T) {
	for name, waiting := range map[string][]byte{"room": nil, "none": make([]byte, maxOut+1)} {
		sent := 0
		for looks := range 6 {
			t.Run(fmt.Sprint(name, looks), func(t *testing.T) {
				c, err := newClient("nobody", Config{})
				require.NoError(t, err)
				s := &session{
					c: c, by: TCP, begun: time.Now(), m: mirror.New(mirror.Config{}), wake: make(chan struct{}, 1), room: make(chan struct{}),
					over: make(chan struct{}), idle: make(chan struct{}), calls: map[uint64]*call{}, out: waiting,
				}
				s.live, s.stop = context.WithCancel(c.ctx)
				defer s.stop()
				c.set(s, nil)
				err = c.Set(endsAfter(looks), []byte("key"), Item{}, 0)
				require.Error(t, err)
				require.Empty(t, s.calls)
				if len(s.out) > len(waiting) {
					sent++
					require.ErrorIs(t, err, ErrOutcomeUnknown)
				} else {
					require.NotErrorIs(t, err, ErrOutcomeUnknown)
				}
			})
		}
		require.Equal(t, waiting == nil, sent > 0, "that it is sent is tried where it can be")
	}
}

// No time is too long: a very long one does not overflow to one that is over already.
func TestExpiryOfAnyTime(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3_600_000, -1: -1, math.MinInt64: -1,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1, math.MaxInt64 - 999_999: math.MaxInt64 / 1_000_000,
	} {
		require.Equal(t, want, expiry(ttl), ttl)
	}
	require.Equal(t, time.Duration(math.MaxInt64), left(math.MaxUint64/2, 0))
	require.Equal(t, time.Duration(math.MaxInt64), left(math.MaxInt64/1_000_000+1, 0))
	require.Equal(t, time.Duration(math.MaxInt64/1_000_000*1_000_000), left(math.MaxInt64/1_000_000, 0))
	require.Equal(t, 5*time.Millisecond, left(15, 10))
	require.Zero(t, left(10, 15), "it expires just now")
}
