//go:build linux

package integrations

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// 64 bytes, and 256 KiB, there and back over one stream of one connection.
func BenchmarkQUIC(b *testing.B) {
	exchange := func(b *testing.B, near, far net.PacketConn, n int) {
		client, server := connect(b, near, far)
		go echo(server)
		s, err := client.OpenStream()
		require.NoError(b, err)
		sent, got := make([]byte, n), make([]byte, n)
		b.SetBytes(int64(n))
		for b.Loop() {
			go s.Write(sent)
			_, err := io.ReadFull(s, got)
			require.NoError(b, err)
		}
		require.NoError(b, client.CloseWithError(0, ""))
	}
	for _, n := range []int{64, 256 << 10} {
		name := strconv.Itoa(n)
		b.Run(name+"/udp", func(b *testing.B) {
			var conns [2]net.PacketConn
			for i, e := range lab.Require(b, 2) {
				c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.Addr, 0)))
				require.NoError(b, err)
				b.Cleanup(func() { c.Close() })
				conns[i] = c
			}
			exchange(b, conns[0], conns[1], n)
		})
		b.Run(name+"/srd", func(b *testing.B) {
			ends := lab.Require(b, 2)
			exchange(b, packets(b, ends[0]), packets(b, ends[1]), n)
		})
	}
}
