package lockoffload

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

func TestAgentConfig(t *testing.T) {
	_, err := NewAgent(AgentConfig{})
	require.ErrorIs(t, err, ErrConfig)
	region := &Region{Layout: Layout{Slots: 1, Size: 8}.withDefaults()}
	for _, cfg := range []AgentConfig{
		{Clients: -1}, {Queue: -1}, {Queue: 1 << 15}, {Limits: ChainLimits{Window: 257}},
		{Limits: ChainLimits{Window: -1}}, {Limits: ChainLimits{Message: 8}}, {Limits: ChainLimits{Message: 101}},
	} {
		cfg.PD, cfg.Region = new(verbs.PD), region
		_, err := NewAgent(cfg)
		require.ErrorIs(t, err, ErrConfig, "%+v", cfg)
	}
	_, err = NewCaller(context.Background(), CallerConfig{Layout: region.Layout})
	require.ErrorIs(t, err, ErrConfig)
}

func TestChainDeadline(t *testing.T) {
	none := context.Background()
	require.Zero(t, (&Chain{}).deadline(none), "the agent's own limit")
	require.EqualValues(t, 1, (&Chain{Deadline: 1}).deadline(none), "rounded up")
	require.EqualValues(t, 1500, (&Chain{Deadline: 1500 * time.Microsecond}).deadline(none))
	require.EqualValues(t, 1<<32-1, (&Chain{Deadline: 1e6 * time.Hour}).deadline(none))
	over, cancel := context.WithDeadline(none, time.Now().Add(-time.Hour))
	defer cancel()
	require.EqualValues(t, 1, (&Chain{}).deadline(over), "over is not the same as none")
	soon, cancel := context.WithTimeout(none, time.Minute)
	defer cancel()
	require.InDelta(t, 60e6, (&Chain{}).deadline(soon), 1e6)
}

// What a client is told by each kind of reply.
func TestChainReplies(t *testing.T) {
	for status, want := range map[wire.ChainStatus]error{
		wire.ChainDone: nil, wire.ChainDiffers: ErrVersionMismatch, wire.ChainNotAcquired: ErrNotAcquired, wire.ChainBusy: ErrBusy,
		wire.ChainUnknown: ErrOutcomeUnknown, wire.ChainRefused: ErrConfig, wire.ChainDamaged: ErrRecord,
	} {
		ch := Chain{Accesses: []Access{{Kind: AccessRead, Data: make([]byte, 8)}, {Kind: AccessCompare, Version: 1}}}
		r := wire.ChainReply{Client: 1, Seq: 1, Status: status, Tries: 3}
		msg, n := r.AppendTo(nil), 0
		if status == wire.ChainDone || status == wire.ChainDiffers {
			msg = wire.AppendAccess(msg, wire.Access{Kind: wire.AccessRead, Version: 4, Data: []byte("four")})
			msg = wire.AppendAccess(msg, wire.Access{Kind: wire.AccessCompare, Version: 5})
			n = 2
		}
		res, err := ch.take(wire.SealMessage(msg, n))
		require.ErrorIs(t, err, want)
		require.Equal(t, 3, res.Tries)
		if n > 0 {
			require.Equal(t, "four", string(ch.Accesses[0].Data))
			require.EqualValues(t, 5, ch.Accesses[1].Version)
		}
	}
	ch := Chain{Accesses: []Access{{Kind: AccessWrite, Data: []byte("x")}}}
	r := wire.ChainReply{Client: 1, Seq: 1, Status: wire.ChainDone}
	_, err := ch.take(wire.SealMessage(wire.AppendAccess(r.AppendTo(nil), wire.Access{Kind: wire.AccessRead}), 1))
	require.ErrorIs(t, err, ErrOutcomeUnknown, "the answer to something else")
	_, err = ch.take(wire.SealMessage(r.AppendTo(nil), 0))
	require.ErrorIs(t, err, ErrOutcomeUnknown, "done, but nothing of it")
	_, err = ch.take([]byte("rubbish"))
	require.ErrorIs(t, err, ErrOutcomeUnknown)
}

// What an agent that is gone did not begin is carried out from here; what it may have
// begun is not.
func TestNotBegun(t *testing.T) {
	begun := fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrBroken)
	for err, want := range map[error]bool{
		ErrBusy: true, ErrClosed: true, ErrBroken: true, begun: false, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrClosed): false,
		ErrVersionMismatch: false, ErrNotAcquired: false, ErrConfig: false, context.Canceled: false,
	} {
		require.Equal(t, want, notBegun(err), "%v", err)
	}
	require.False(t, notBegun(nil))
}

// What only the client itself can carry out no agent gets, and it has to write.
func TestChainsForTheClientItself(t *testing.T) {
	l := Layout{Slots: 1, Size: 8}.withDefaults()
	read, write := []Access{{Kind: AccessRead}}, []Access{{Kind: AccessWrite}}
	change := func([]Access) error { return nil }
	for _, ch := range []Chain{{Async: true, Accesses: write}, {Change: change, Accesses: append(read, write...)}} {
		require.NoError(t, ch.check(l, math.MaxInt))
		require.ErrorIs(t, ch.check(l, 1<<20), ErrConfig, "for an agent")
		ch.Fair = true
		require.ErrorIs(t, ch.check(l, math.MaxInt), ErrConfig)
	}
	for _, ch := range []Chain{{Async: true}, {Change: change, Accesses: read}, {Accesses: read}} {
		require.ErrorIs(t, ch.check(l, math.MaxInt), ErrConfig)
	}
}
