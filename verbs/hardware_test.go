//go:build linux

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What rxe lacks: where a device has it, it works.
func TestPathOfQueuePair(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{FlowLabel: verbs.FlowLabelFor(0xc001)})
	refused(t, "UDP source port", experimental.SetUDPSourcePort(a.QP, 0xc002))
	port, _, err := experimental.LAGPort(a.QP)
	if !refused(t, "LAG port", err) {
		require.NoError(t, experimental.SetLAGPort(a.QP, port))
	}
}

func TestECEOfQueuePair(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{ECE: true}, verbs.CQConfig{}, verbs.ConnectConfig{})
	taken, err := a.QP.ECE()
	if refused(t, "enhanced connection establishment", err) {
		require.Zero(t, a.Endpoint(t).ECE)
		return
	}
	require.Equal(t, a.Endpoint(t).ECE.Vendor, taken.Vendor)
}

func TestMemoryOfDevice(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	m, err := experimental.AllocDeviceMemory(b.Dev, 64, 8)
	if !refused(t, "device memory", err) {
		want := []byte("in the device...")
		require.NoError(t, m.CopyIn(16, want))
		mr, err := experimental.RegisterDeviceMemory(b.PD, m, 16, 16, verbs.MRConfig{Access: verbs.RemoteRead})
		require.NoError(t, err)
		read := a.Batch(t, 1)
		read.Read(1, verbs.Signaled, mr.Region().At(0), a.MR.SGE(0, 16))
		a.Do(t, read, 1)
		require.Equal(t, want, a.MR.Bytes()[:16])
		require.NoError(t, mr.Close())
		require.NoError(t, m.Close())
	}
	null, err := experimental.AllocNullMR(a.PD)
	if !refused(t, "null memory region", err) {
		read := a.Batch(t, 1)
		read.Read(2, verbs.Signaled, b.MR.Region().At(0), null.SGE(0, 64))
		a.Do(t, read, 1)
		require.NoError(t, null.Close())
	}
}

func TestFlowOfQueuePair(t *testing.T) {
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{})
	f, err := experimental.CreateFlow(a.QP, experimental.FlowRule{EtherType: 0x88b5})
	if !refused(t, "flow steering", err) {
		require.NoError(t, f.Close())
	}
}

func TestFlagsOfCQ(t *testing.T) {
	a := rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
	for feature, cfg := range map[string]verbs.CQConfig{
		"single-threaded completion queue":          {SingleThreaded: true},
		"completion queue that ignores overruns":    {IgnoreOverrun: true},
		"sender of a datagram without route header": {Fields: experimental.FieldSender},
	} {
		cfg.PollOnly = true
		c, err := a.Dev.CreateCQ(cfg)
		if !refused(t, feature, err) {
			require.NoError(t, c.Close())
		}
	}
}
