//go:build !linux

package verbs

import (
	"context"
	"net/netip"
)

func lookupAddr(_ context.Context, addr netip.Addr) (Local, error) {
	return Local{}, opError("look up", addr.String(), ErrUnsupported)
}

func lookupNetdev(_ context.Context, name string) (Local, error) {
	return Local{}, opError("look up", name, ErrUnsupported)
}

func resolvePath(_ context.Context, _, dst netip.Addr) (Path, error) {
	return Path{}, opError("resolve the path to", dst.String(), ErrUnsupported)
}

func netdevs(context.Context) ([]Netdev, error) { return nil, ErrUnsupported }
