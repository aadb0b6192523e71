//go:build linux && cgo

package verbs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// TestModifyStepsAreModify, step by step and with the same arguments, whether they
// fit on the stack or not.
func TestModifyStepsAreModify(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := connectedRC(t, p, c)
	for n := range 8 {
		var steps []modifyStep
		for k := range n {
			steps = append(steps, []modifyStep{resetStep(), q.initStep()}[k%2])
		}
		standin.Recorded()
		require.NoError(t, q.modifyBySteps(steps...))
		at, together := q.State(), standin.Recorded()
		require.Equal(t, n, strings.Count(together, "modify mask="))
		for _, s := range steps {
			require.NoError(t, q.Modify(s.Attr, s.Mask))
		}
		require.Equal(t, at, q.State())
		require.Equal(t, standin.Recorded(), together)
	}
	require.NoError(t, q.Close())
}

// TestModifyStepsRefused at the first one: nothing has happened.
func TestModifyStepsRefused(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := connectedRC(t, p, c)
	for _, n := range []int{1, 2, 6} {
		steps := []modifyStep{resetStep(), q.initStep(), resetStep(), q.initStep(), resetStep(), q.initStep()}[:n]
		standin.Refuse("modify", syscall.ENOMEM)
		require.ErrorIs(t, q.modifyBySteps(steps...), syscall.ENOMEM)
		require.Equal(t, StateRTS, q.State())
	}
	require.NoError(t, q.Close())
}

// TestModifyStepsDoNotAllocate as long as there are no more than from RESET to RTS. A
// queue pair that is reset begins another life, which is allocated.
func TestModifyStepsDoNotAllocate(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := connectedRC(t, p, c)
	init := q.initStep()
	require.NoError(t, q.modifyBySteps(resetStep(), init))
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if err := q.modifyBySteps(init, init, init, init); err != nil {
			t.Error(err)
		}
	}))
	standin.Recorded()
	require.NoError(t, q.Close())
}
