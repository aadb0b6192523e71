//go:build linux

package rdmacm_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// An empty host is every address of the host, of both families.
func TestListensOnBothFamilies(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	dev, err := m.Device(p[1].Name)
	require.NoError(t, err)
	gids, err := dev.GIDs()
	require.NoError(t, err)
	tried := map[bool]bool{}
	for _, g := range gids {
		at := g.GID.Addr()
		if at.IsLinkLocalUnicast() {
			ifi, err := net.InterfaceByIndex(g.IfIndex)
			require.NoError(t, err)
			at = at.WithZone(ifi.Name)
		}
		l, err := m.Listen(":0", rdmacm.ListenConfig{})
		require.NoError(t, err)
		require.NotZero(t, l.Addr().Port())
		done := make(chan error, 1)
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				err = r.Reject([]byte("seen"))
			}
			done <- err
		}()
		_, err = m.Dial(ctx, netip.AddrPortFrom(at, l.Addr().Port()).String(), rdmacm.DialConfig{Local: netip.AddrPortFrom(at, 0)})
		var rejected *rdmacm.RejectedError
		require.ErrorAs(t, err, &rejected, "%v", at)
		require.Equal(t, "seen", string(rejected.PrivateData[:4]), "%v", at)
		require.NoError(t, <-done)
		require.NoError(t, l.Close())
		tried[at.Is4()] = true
	}
	require.Equal(t, map[bool]bool{true: true, false: true}, tried)
}
