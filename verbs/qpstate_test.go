package verbs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestTransitionsNameWhatIsWrong(t *testing.T) {
	rtr := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestReadAtomic | verbs.AttrMinRNRTimer
	for _, c := range []struct {
		name     string
		typ      verbs.QPType
		from, to verbs.QPState
		mask     verbs.AttrMask
		want     string // empty: allowed
		is       error
	}{
		{"RC to RTR", verbs.RC, verbs.StateInit, verbs.StateRTR, rtr, "", nil},
		{"without AV", verbs.RC, verbs.StateInit, verbs.StateRTR, rtr &^ verbs.AttrAV,
			"INIT to RTR: missing: AV", verbs.ErrAttributes},
		{"two missing, one too many", verbs.RC, verbs.StateInit, verbs.StateRTR, rtr&^(verbs.AttrAV|verbs.AttrRQPSN) | verbs.AttrQKey,
			"INIT to RTR: missing: AV|RQ_PSN; not allowed: QKEY", verbs.ErrAttributes},
		{"UC has no RNR timer", verbs.UC, verbs.StateInit, verbs.StateRTR, rtr,
			"INIT to RTR: not allowed: MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC", verbs.ErrAttributes},
		{"UD to RTR", verbs.UD, verbs.StateInit, verbs.StateRTR, verbs.AttrState, "", nil},
		{"skipping INIT", verbs.RC, verbs.StateReset, verbs.StateRTR, rtr, "no transition RESET to RTR for RC", verbs.ErrState},
		{"backwards", verbs.RC, verbs.StateRTS, verbs.StateRTR, rtr, "no transition RTS to RTR for RC", verbs.ErrState},
		{"to error from anywhere", verbs.UD, verbs.StateReset, verbs.StateError, verbs.AttrState, "", nil},
		{"to reset takes nothing", verbs.RC, verbs.StateRTS, verbs.StateReset, verbs.AttrState | verbs.AttrQKey,
			"RTS to RESET: not allowed: QKEY", verbs.ErrAttributes},
		{"out of error only to RESET", verbs.RC, verbs.StateError, verbs.StateRTS, verbs.AttrState,
			"no transition ERROR to RTS for RC", verbs.ErrState},
		{"SQE recovers", verbs.UD, verbs.StateSQE, verbs.StateRTS, verbs.AttrState, "", nil},
		{"RC has no SQE", verbs.RC, verbs.StateSQE, verbs.StateRTS, verbs.AttrState, "no transition SQE to RTS for RC", verbs.ErrState},
	} {
		err := verbs.CheckTransition(c.typ, c.from, c.to, c.mask)
		if c.want == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.EqualError(t, err, c.want, c.name)
		require.ErrorIs(t, err, c.is, c.name)
		var te *verbs.TransitionError
		require.True(t, errors.As(err, &te), c.name)
	}
	require.Equal(t, "STATE|RATE_LIMIT|bit 30", (verbs.AttrState | verbs.AttrRateLimit | 1<<30).String())
}

func TestTimersRoundUp(t *testing.T) {
	require.Equal(t, verbs.AckTimeout(14), verbs.AckTimeoutFor(67*time.Millisecond))
	require.Equal(t, verbs.AckTimeout(1), verbs.AckTimeoutFor(0))
	require.Equal(t, verbs.AckTimeout(31), verbs.AckTimeoutFor(24*time.Hour))
	require.Equal(t, 67108864*time.Nanosecond, verbs.AckTimeout(14).Duration())
	require.Zero(t, verbs.AckTimeout(0).Duration(), "0 is without end")

	require.Equal(t, verbs.RNRTimer(12), verbs.RNRTimerFor(640*time.Microsecond))
	require.Equal(t, verbs.RNRTimer(13), verbs.RNRTimerFor(641*time.Microsecond))
	require.Equal(t, verbs.RNRTimer(0), verbs.RNRTimerFor(time.Hour), "the longest there is")
	require.Equal(t, 655360*time.Microsecond, verbs.RNRTimer(0).Duration())
	for n := verbs.RNRTimer(1); n < 32; n++ {
		require.Equal(t, n, verbs.RNRTimerFor(n.Duration()))
	}
}
