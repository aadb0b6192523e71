//go:build simhca && linux && cgo

package verbs_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// inFabric skips a test without two devices of one fabric.
func inFabric(t *testing.T) {
	if strings.Count(os.Getenv("SIMHCA"), "@") != 2 {
		t.Skip("needs SIMHCA=mlx5@NAME,mlx5@NAME")
	}
}

// The devices of a fabric lie on lo: each address of it leads to one.
func TestFabricAddresses(t *testing.T) {
	inFabric(t)
	for at, want := range map[string][2]string{
		"127.0.0.1":        {"mlx5_0", "127.0.0.1"},
		"::ffff:127.0.0.1": {"mlx5_0", "127.0.0.1"},
		"127.0.0.2":        {"mlx5_1", "127.0.0.2"},
		"127.1.2.3":        {"mlx5_0", "127.0.0.1"}, // of no device
		"::1":              {"mlx5_0", "::1"},
	} {
		addr := netip.MustParseAddr(at)
		l, err := verbs.LookupAddr(t.Context(), addr)
		require.NoError(t, err, at)
		require.Equal(t, want, [2]string{l.Device, l.GID.GID.Addr().String()}, at)
		require.Equal(t, []any{"lo", "lo", uint8(1), verbs.GIDRoCEv2}, []any{l.Netdev, l.Lower, l.Port, l.GID.Type}, at)
		p, err := verbs.ResolvePath(t.Context(), addr)
		require.NoError(t, err, at)
		require.True(t, p.Loopback)
		require.Equal(t, want[0], p.Device, at)
		require.Equal(t, verbs.MTU4096, p.MTU)
	}
	l, err := verbs.LookupNetdev(t.Context(), "lo")
	require.NoError(t, err)
	require.Equal(t, "mlx5_0", l.Device)
	_, err = verbs.LookupAddr(t.Context(), netip.MustParseAddr("192.0.2.1"))
	require.ErrorIs(t, err, netpath.ErrNoAddress)
}

// Links over lo need no configuration, whichever of its addresses the server has.
func TestFabricLinks(t *testing.T) {
	inFabric(t)
	for _, at := range []string{"127.0.0.1:0", "127.0.0.2:0", "127.1.2.3:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		require.NoError(t, err)
		memory := []byte("the server's memory")
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
			served <- verbs.ServeLinks(ctx, l, cfg, func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return nil }, nil)
		}()
		link, err := verbs.DialLink(ctx, l.Addr().String(), verbs.LinkConfig{})
		require.NoError(t, err, at)
		mr, err := link.AllocMR(len(memory), verbs.MRConfig{})
		require.NoError(t, err)
		r, err := link.Requester()
		require.NoError(t, err)
		require.NoError(t, r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, len(memory))))
		require.Equal(t, memory, mr.Bytes())
		require.NoError(t, link.Close())
		stop()
		require.NoError(t, <-served)
	}
}
