//go:build linux

package integrations

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
)

// benchmark is gRPC's service for measurements.
type benchmark struct {
	grpc_testing.UnimplementedBenchmarkServiceServer
}

func (benchmark) UnaryCall(_ context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: make([]byte, r.ResponseSize)}}, nil
}

func (benchmark) StreamingCall(s grpc.BidiStreamingServer[grpc_testing.SimpleRequest, grpc_testing.SimpleResponse]) error {
	for {
		r, err := s.Recv()
		if err == nil {
			err = s.Send(&grpc_testing.SimpleResponse{Payload: r.Payload})
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// client serves benchmark, and returns a client of it.
func client(t testing.TB, l net.Listener, dialer grpc.DialOption) grpc_testing.BenchmarkServiceClient {
	t.Helper()
	s := grpc.NewServer()
	grpc_testing.RegisterBenchmarkServiceServer(s, benchmark{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), dialer, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return grpc_testing.NewBenchmarkServiceClient(conn)
}

func TestGRPC(t *testing.T) {
	cm, cfg, l := rdma(t)
	c := client(t, l, GRPCDialer(cm, cfg))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range []int32{0, 64, 300_000} {
		r, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{ResponseSize: n})
		require.NoError(t, err)
		require.Len(t, r.Payload.Body, int(n))
	}
	s, err := c.StreamingCall(ctx)
	require.NoError(t, err)
	for i := range 30 {
		body := bytes.Repeat([]byte{byte(i)}, i*500)
		require.NoError(t, s.Send(&grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: body}}))
		r, err := s.Recv()
		require.NoError(t, err)
		require.True(t, bytes.Equal(r.Payload.Body, body), "message %d", i)
	}
	require.NoError(t, s.CloseSend())
	_, err = s.Recv()
	require.ErrorIs(t, err, io.EOF)
}
