//go:build linux && cgo

package verbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// connectedRC is a queue pair of the stand-in in RTS.
func connectedRC(t *testing.T, p *PD, c *CQ) *QP {
	t.Helper()
	q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Extended: true})
	require.NoError(t, err)
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	standin.Recorded()
	return q
}

func TestUDPSourcePort(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := connectedRC(t, p, c)
	require.NoError(t, q.setUDPSourcePort(0xc123))
	recorded(t, `
		mlx5dv_modify_qp_udp_sport port=49443`)

	require.ErrorIs(t, q.setUDPSourcePort(4791), ErrAttributes)
	standin.Refuse("mlx5dv_modify_qp_udp_sport", syscall.EOPNOTSUPP)
	err := q.setUDPSourcePort(0xc123)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "firmware")
	standin.Recorded()

	require.NoError(t, q.ToError())
	require.ErrorIs(t, q.setUDPSourcePort(0xc123), ErrState, "libmlx5 would say that it is not supported")
	ud, err := p.CreateQP(QPConfig{Type: UD, SendCQ: c, GID: standinGID, Extended: true})
	require.NoError(t, err)
	require.ErrorIs(t, ud.setUDPSourcePort(0xc123), ErrUnsupported)
	require.NotContains(t, standin.Recorded(), "udp_sport")
	require.NoError(t, q.Close())
	require.NoError(t, ud.Close())
	require.ErrorIs(t, q.setUDPSourcePort(0xc123), ErrClosed)
}

func TestLAGPort(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := connectedRC(t, p, c)
	require.NoError(t, q.setLAGPort(1))
	port, active, err := q.lagPort()
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{port, active})
	recorded(t, `
		mlx5dv_modify_qp_lag_port port=1
		mlx5dv_query_qp_lag_port`)
	require.ErrorIs(t, q.setLAGPort(0), ErrAttributes)
	standin.Refuse("mlx5dv_modify_qp_lag_port", syscall.EOPNOTSUPP)
	err = q.setLAGPort(2)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "bonded")
	require.NoError(t, q.Close())
}

// TestFlowLabelChoosesSourcePort: by the formula of libibverbs, and back.
func TestFlowLabelChoosesSourcePort(t *testing.T) {
	for label := range uint32(1 << 20) {
		if got := UDPSourcePort(label); got != standin.FlowLabelToUDPSourcePort(label) {
			t.Fatalf("label %#x: port %#x", label, got)
		}
	}
	for port := 0xc000; port <= 0xffff; port++ {
		label := FlowLabelFor(uint16(port))
		require.NotZero(t, label, "0 lets the device choose")
		require.EqualValues(t, port, UDPSourcePort(label))
	}
}

// TestFlowLabelOfConnection: it reaches the address vector, if it is one.
func TestFlowLabelOfConnection(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{SendCQ: c, GID: standinGID, Extended: true})
	require.NoError(t, err)
	peer := Endpoint{Type: RC, QPN: 1, GID: standinPeer, MTU: MTU4096}
	require.ErrorIs(t, q.Connect(peer, ConnectConfig{FlowLabel: 1 << 20}), ErrAttributes)
	way, err := q.PathTo(peer, ConnectConfig{FlowLabel: FlowLabelFor(0xc123)})
	require.NoError(t, err)
	raw := way.raw()
	require.EqualValues(t, 0x123, raw.GRH.FlowLabel)
	require.NoError(t, q.Close())
}
