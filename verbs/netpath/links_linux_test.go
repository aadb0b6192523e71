package netpath

import (
	"testing"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func linkMessage(t *testing.T, kind string, data []byte, more ...netlink.Attribute) []byte {
	info := &rtnetlink.LinkInfo{Kind: kind}
	if data != nil {
		info.Data = &rtnetlink.LinkData{Name: kind, Data: data}
	}
	b, err := (&rtnetlink.LinkMessage{Index: 5, Attributes: &rtnetlink.LinkAttributes{Name: "x0", Type: 2, MTU: 1500, Info: info}}).MarshalBinary()
	require.NoError(t, err)
	attrs, err := netlink.MarshalAttributes(more)
	require.NoError(t, err)
	return append(b, attrs...)
}

// The number of the netdev below may be one of another namespace, where it names
// another netdev.
func TestLinkBelow(t *testing.T) {
	n, err := ifaceOf(linkMessage(t, "macvlan", nil))
	require.NoError(t, err)
	require.Equal(t, "macvlan", n.Kind)
	require.Equal(t, 2, n.link)
	require.Equal(t, 1500, n.MTU)
	n, err = ifaceOf(linkMessage(t, "macvlan", nil, netlink.Attribute{Type: unix.IFLA_LINK_NETNSID, Data: make([]byte, 4)}))
	require.NoError(t, err)
	require.Zero(t, n.link)
}

func TestVLANTag(t *testing.T) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint16(unix.IFLA_VLAN_ID, 77)
	tag, err := ae.Encode()
	require.NoError(t, err)
	n, err := ifaceOf(linkMessage(t, "vlan", tag))
	require.NoError(t, err)
	require.Equal(t, 77, n.tag)
	for _, bad := range [][]byte{nil, {1}, {5, 0, 1, 0, 7, 0, 0, 0}, {9, 0, 1, 0, 7, 7, 7, 7}} {
		require.Zero(t, vlanTag(bad))
	}
	n, err = ifaceOf(linkMessage(t, "macvlan", tag))
	require.NoError(t, err)
	require.Zero(t, n.tag, "of another kind")
	_, err = ifaceOf([]byte{1, 2, 3})
	require.Error(t, err)
}
