//go:build linux

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// wayTo are the steps that bring a queue pair from RESET to RTS towards a peer, as
// [verbs.QP.Connect] does.
func wayTo(t *testing.T, from, to *rig.Side) []driver.ModifyStep {
	t.Helper()
	e, own := to.Endpoint(t), from.Endpoint(t)
	gid, err := from.Dev.FindGID(verbs.GIDQuery{Addr: own.GID.Addr()})
	require.NoError(t, err)
	return []driver.ModifyStep{driver.ResetStep(), driver.InitStep(from.QP),
		{Mask: verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestReadAtomic | verbs.AttrMinRNRTimer,
			Attr: verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU1024, DestQPN: e.QPN, RQPSN: e.PSN, MaxDestReadAtomic: 1, MinRNRTimer: 12,
				AH: verbs.AHAttr{GID: e.GID, DLID: e.LID, SGIDIndex: gid.Index, Port: gid.Port}}},
		{Mask: verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxReadAtomic,
			Attr: verbs.QPAttr{State: verbs.StateRTS, SQPSN: own.PSN, Timeout: 14, RetryCount: 6, RNRRetry: 6, MaxReadAtomic: 1}},
	}
}

// TestModifyStepsOfAnyNumber: in one crossing, whether they fit on the stack or not,
// they come to what they come to one by one, as the device tells and as requests
// show.
func TestModifyStepsOfAnyNumber(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	ways := [2][]driver.ModifyStep{wayTo(t, a, b), wayTo(t, b, a)}
	for name, repeated := range map[string]int{"4 steps": 0, "6 steps": 1, "12 steps": 4} {
		for k, s := range []*rig.Side{a, b} {
			var steps []driver.ModifyStep
			for range repeated {
				steps = append(steps, ways[k][:2]...)
			}
			require.NoError(t, driver.ModifySteps(s.QP, append(steps, ways[k]...)...), name)
			require.Equal(t, verbs.StateRTS, s.QP.State(), name)
			got, err := s.QP.Query()
			require.NoError(t, err)
			rtr, rts := ways[k][2].Attr, ways[k][3].Attr
			require.Equal(t, verbs.QPAttr{State: verbs.StateRTS, DestQPN: rtr.DestQPN, PathMTU: rtr.PathMTU, Timeout: rts.Timeout, RetryCount: rts.RetryCount, RNRRetry: rts.RNRRetry},
				verbs.QPAttr{State: got.State, DestQPN: got.DestQPN, PathMTU: got.PathMTU, Timeout: got.Timeout, RetryCount: got.RetryCount, RNRRetry: got.RNRRetry}, name)
		}
		rig.Fill(a.MR.Bytes()[:64], uint64(repeated))
		w := a.Batch(t, 1)
		w.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 64))
		require.NoError(t, a.Do(t, w, 1)[0].Err(), name)
		require.Equal(t, a.MR.Bytes()[:64], b.MR.Bytes()[:64], name)
	}
}

// TestModifyStepsEndInTheMiddle with the step that the device refuses; the queue
// pair is where the one before has brought it, and can go on from there.
func TestModifyStepsEndInTheMiddle(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	way := wayTo(t, a, b)
	bad := way[2]
	bad.Attr.AH.SGIDIndex = 200
	for name, steps := range map[string][]driver.ModifyStep{
		"3 steps": {way[0], way[1], bad},
		"4 steps": {way[0], way[1], bad, way[3]},
		"6 steps": {way[0], way[1], way[0], way[1], bad, way[3]},
	} {
		require.Error(t, driver.ModifySteps(a.QP, steps...), name)
		require.Equal(t, verbs.StateInit, a.QP.State(), name)
		got, err := a.QP.Query()
		require.NoError(t, err)
		require.Equal(t, verbs.StateInit, got.State, "%s: what the device says", name)
		require.NoError(t, driver.ModifySteps(a.QP, way[2:]...), name)
		require.Equal(t, verbs.StateRTS, a.QP.State(), name)
	}
	for _, before := range [][]driver.ModifyStep{nil, {way[0], way[1], way[0], way[1]}} {
		require.ErrorIs(t, driver.ModifySteps(a.QP, append(before, way[0], way[2])...), verbs.ErrState)
		require.Equal(t, verbs.StateRTS, a.QP.State(), "steps that cannot be are not begun")
	}
	require.NoError(t, driver.ModifySteps(a.QP), "none")
	require.NoError(t, a.QP.Close())
	require.ErrorIs(t, driver.ModifySteps(a.QP, way...), verbs.ErrClosed)
	require.ErrorIs(t, driver.ModifySteps(a.QP), verbs.ErrClosed)
}
