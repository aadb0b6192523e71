//go:build linux

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// What rxe lacks: where a device has it, it works.
func TestPathOfQueuePair(t *testing.T) {
	a, _ := newPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{FlowLabel: verbs.FlowLabelFor(0xc001)})
	refused(t, "UDP source port", a.qp.SetUDPSourcePort(0xc002))
	port, _, err := a.qp.LAGPort()
	if !refused(t, "LAG port", err) {
		require.NoError(t, a.qp.SetLAGPort(port))
	}
}

func TestECEOfQueuePair(t *testing.T) {
	a, _ := newPair(t, verbs.QPConfig{ECE: true}, verbs.CQConfig{}, verbs.ConnectConfig{})
	taken, err := a.qp.ECE()
	if refused(t, "enhanced connection establishment", err) {
		require.Zero(t, a.endpoint(t).ECE)
		return
	}
	require.Equal(t, a.endpoint(t).ECE.Vendor, taken.Vendor)
}
