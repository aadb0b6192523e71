//go:build linux && cgo

package verbs

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs/internal/flow"
)

func rawQP(t *testing.T, p *PD, c *CQ) *QP {
	t.Helper()
	q, err := p.CreateQP(QPConfig{Type: RawPacket, SendCQ: c, GID: standinGID, Extended: true})
	require.NoError(t, err)
	standin.Recorded()
	return q
}

// The bytes are those of struct ibv_flow_*_filter: network byte order.
func TestFlowRules(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := rawQP(t, p, c)
	vlan := uint16(0x123)
	for name, r := range map[string]struct {
		rule flow.Rule
		want string
	}{
		"all": {flow.Rule{}, `
		ibv_create_flow type=0 priority=0 port=1 flags=0 specs=1
		  eth val=00000000000000000000000000000000 mask=00000000000000000000000000000000`},
		"Ethernet": {flow.Rule{DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EtherType: 0x88b5, VLAN: &vlan, Priority: 3, Share: true}, `
		ibv_create_flow type=0 priority=3 port=1 flags=2 specs=1
		  eth val=02000000000102000000000288b50123 mask=ffffffffffffffffffffffffffff0fff`},
		"IPv4 and UDP": {flow.Rule{Dst: netip.MustParsePrefix("10.77.0.2/32"), Src: netip.MustParsePrefix("10.77.9.9/16"), Protocol: flow.UDP, DstPort: 4791, SrcPort: 0xc123}, `
		ibv_create_flow type=0 priority=0 port=1 flags=0 specs=3
		  eth val=00000000000000000000000000000000 mask=00000000000000000000000000000000
		  ipv4 val=0a4d00000a4d0002 mask=ffff0000ffffffff
		  udp val=12b7c123 mask=ffffffff`},
		"IPv6 and TCP": {flow.Rule{Dst: netip.MustParsePrefix("fd00::1/64"), Protocol: flow.TCP, SrcPort: 80}, `
		ibv_create_flow type=0 priority=0 port=1 flags=0 specs=3
		  eth val=00000000000000000000000000000000 mask=00000000000000000000000000000000
		  ipv6 val=00000000000000000000000000000000fd000000000000000000000000000000 mask=00000000000000000000000000000000ffffffffffffffff0000000000000000
		  tcp val=00000050 mask=0000ffff`},
		"the rest": {flow.Rule{Type: flow.Default}, `
		ibv_create_flow type=1 priority=0 port=1 flags=0 specs=0`},
		"copies of everything": {flow.Rule{Type: flow.Sniffer}, `
		ibv_create_flow type=3 priority=0 port=1 flags=0 specs=0`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := q.createFlow(r.rule)
			require.NoError(t, err)
			recorded(t, r.want)
			require.ErrorIs(t, q.Close(), ErrInUse)
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
			recorded(t, `
		ibv_destroy_flow`)
		})
	}
	require.NoError(t, q.Close())
	_, err := q.createFlow(flow.Rule{})
	require.ErrorIs(t, err, ErrClosed)
}

func TestFlowRefusals(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q := rawQP(t, p, c)
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	big := uint16(4096)
	for _, bad := range []flow.Rule{
		{Type: 4},
		{Type: flow.Default, EtherType: 1},
		{Type: flow.Sniffer, Share: true},
		{DstMAC: net.HardwareAddr{1, 2, 3}},
		{SrcMAC: make(net.HardwareAddr, 12)},
		{VLAN: &big},
		{Dst: v4, Src: v6},
		{Dst: netip.MustParsePrefix("::ffff:1.2.3.4/128")},
		{Dst: v4, Protocol: 17},
		{Dst: v4, DstPort: 1},
		{Protocol: flow.UDP, DstPort: 1},
	} {
		_, err := q.createFlow(bad)
		require.ErrorIs(t, err, ErrAttributes, "%+v", bad)
	}
	rc := connectedRC(t, p, c)
	_, err := rc.createFlow(flow.Rule{})
	require.ErrorIs(t, err, ErrAttributes)
	require.Empty(t, standin.Recorded(), "refused before the device is asked")
	for errno, want := range map[syscall.Errno]error{
		syscall.EOPNOTSUPP: ErrUnsupported, syscall.EINVAL: ErrAttributes, syscall.EPERM: syscall.EPERM, syscall.EBUSY: syscall.EBUSY,
	} {
		standin.Refuse("ibv_create_flow", errno)
		_, err := q.createFlow(flow.Rule{})
		require.ErrorIs(t, err, want)
	}
	require.NoError(t, q.Close(), "none of them lives")
	require.NoError(t, rc.Close())
}
