package srd

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Each limit and time reaches the machine. What peers may have under way leaves a quarter of the
// receives free.
func TestMachineHasTheConfiguration(t *testing.T) {
	ep := &Endpoint{cfg: Config{MaxPeers: 4, MaxMessage: 5, Receives: 84, PeerTimeout: 10 * time.Second, Key: []byte("0123456789abcdef")}}
	c := ep.sessions(7, 1024, 4)
	require.NotZero(t, c.Seed)
	require.NotZero(t, c.Wall)
	require.NotZero(t, c.Boot())
	require.Equal(t, &wire.Key{0x3736353433323130, 0x6665646362613938}, c.Key)
	c.Seed, c.Wall, c.Boot, c.Key = [32]byte{}, 0, nil, nil
	require.Equal(t, session.Config{Addr: wire.Addr{QPN: 7}, MTU: 1024, MaxPeers: 4, MaxMessage: 5, Budget: 60, PeerTimeout: 10 * time.Second}, c)
}

// A message that is longer than all memory could never be taken.
func TestMessagesLongerThanBuffers(t *testing.T) {
	for _, cfg := range []Config{{MaxMessage: 8<<20 + 1}, {Buffers: 1 << 16, MaxMessage: 1<<16 + 1}, {MaxMessage: 1 << 40}} {
		cfg.PD = new(verbs.PD)
		_, err := Open(cfg)
		require.ErrorIs(t, err, verbs.ErrAttributes)
	}
}

// Times that the engine's clock cannot have are refused: with "never" for PeerTimeout it would
// look for what is due all the time, and stamps of packets last an hour. A few nanoseconds would
// be no time between two greetings.
func TestTimesOfTheConfiguration(t *testing.T) {
	for _, d := range []time.Duration{-1, 1, time.Microsecond - 1, time.Hour + 1, math.MaxInt64} {
		_, err := Open(Config{PD: new(verbs.PD), PeerTimeout: d})
		require.ErrorIs(t, err, verbs.ErrAttributes)
	}
}
