//go:build linux && cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// TestMoveTo: rights go with a change of rights alone.
func TestMoveTo(t *testing.T) {
	d, p, _, _ := driverRig(t)
	mr, err := p.AllocMR(4096, MRConfig{Access: RemoteRead})
	require.NoError(t, err)
	second, err := d.AllocPD()
	require.NoError(t, err)
	standin.Recorded()
	require.NoError(t, mr.MoveTo(second))
	require.NoError(t, mr.SetAccess(RemoteWrite))
	recorded(t, `
		ibv_rereg_mr flags=2 pd=1 access=0
		ibv_rereg_mr flags=4 pd=0 access=0x3`)
	require.ErrorIs(t, second.Close(), ErrInUse)
	require.NoError(t, mr.Close())
	require.NoError(t, second.Close())
}
