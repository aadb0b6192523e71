package integrations

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"

	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// HTTPTransport returns a transport for an [http.Client] whose connections are streams, encrypted if a URL
// has the scheme https. The host of a URL is that of an RDMA interface.
func HTTPTransport(cm *rdmacm.CM, cfg stream.Config) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dial(ctx, cm, address, cfg)
	}}
}

// GRPCDialer returns the option of [grpc.NewClient] that makes connections streams. The target
// "passthrough:///HOST:PORT" is an address that gRPC does not resolve.
func GRPCDialer(cm *rdmacm.CM, cfg stream.Config) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return dial(ctx, cm, address, cfg)
	})
}

func dial(ctx context.Context, cm *rdmacm.CM, address string, cfg stream.Config) (net.Conn, error) {
	conn, err := stream.Dial(ctx, cm, address, cfg)
	if err != nil {
		return nil, err // not a net.Conn that holds a nil *stream.Conn
	}
	return conn, nil
}
