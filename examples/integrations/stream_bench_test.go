//go:build linux

package integrations

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/goverbs/goverbs/ci/lab"
)

// tcp returns a dialer for the near end, whose connections cross the wire, and a listener at the far end.
func tcp(t testing.TB) (*net.Dialer, net.Listener) {
	ends := lab.Require(t, 2)
	l, err := net.Listen("tcp", netip.AddrPortFrom(ends[1].Addr, 0).String())
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}, l
}

// A GET at a time over one connection, of 64 bytes and of 256 KiB.
func BenchmarkHTTP(b *testing.B) {
	get := func(b *testing.B, l net.Listener, transport *http.Transport, n int) {
		s := &http.Server{Handler: web}
		go s.Serve(l)
		defer s.Close()
		c := &http.Client{Transport: transport}
		defer c.CloseIdleConnections()
		url := "http://" + l.Addr().String() + "/" + strconv.Itoa(n)
		_, _, err := do(c, http.MethodGet, url, nil) // connects
		require.NoError(b, err)
		b.SetBytes(int64(n))
		for b.Loop() {
			body, _, err := do(c, http.MethodGet, url, nil)
			require.NoError(b, err)
			require.Len(b, body, n)
		}
	}
	for _, n := range []int{64, 256 << 10} {
		name := strconv.Itoa(n)
		b.Run(name+"/tcp", func(b *testing.B) {
			d, l := tcp(b)
			get(b, l, &http.Transport{DialContext: d.DialContext}, n)
		})
		b.Run(name+"/stream", func(b *testing.B) {
			cm, cfg, l := rdma(b)
			get(b, l, HTTPTransport(cm, cfg), n)
		})
	}
}

// A unary call at a time, with a response of 64 bytes and of 256 KiB.
func BenchmarkGRPC(b *testing.B) {
	call := func(b *testing.B, c grpc_testing.BenchmarkServiceClient, n int) {
		request := &grpc_testing.SimpleRequest{ResponseSize: int32(n)}
		_, err := c.UnaryCall(b.Context(), request) // connects
		require.NoError(b, err)
		b.SetBytes(int64(n))
		for b.Loop() {
			r, err := c.UnaryCall(b.Context(), request)
			require.NoError(b, err)
			require.Len(b, r.Payload.Body, n)
		}
	}
	for _, n := range []int{64, 256 << 10} {
		name := strconv.Itoa(n)
		b.Run(name+"/tcp", func(b *testing.B) {
			d, l := tcp(b)
			call(b, client(b, l, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return d.DialContext(ctx, "tcp", address)
			})), n)
		})
		b.Run(name+"/stream", func(b *testing.B) {
			cm, cfg, l := rdma(b)
			call(b, client(b, l, GRPCDialer(cm, cfg)), n)
		})
	}
}
