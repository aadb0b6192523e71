//go:build !linux

package netpath

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
)

type class struct{ fs.FS }

func infiniband(dir string) class { return class{os.DirFS(dir)} }

func (class) close() {}

func lookupAddr(_ context.Context, op string, addr netip.Addr) (Local, error) {
	return Local{}, opError(op, addr.String(), errors.ErrUnsupported)
}

func lookupNetdev(_ context.Context, op, name string) (Netdev, error) {
	return Netdev{}, opError(op, name, errors.ErrUnsupported)
}

func interfaceMTU(int) (int, error) { return 0, errors.ErrUnsupported }

func interfaces(context.Context) ([]Netdev, error) { return nil, errors.ErrUnsupported }

func netdevs(context.Context) ([]Netdev, error) { return nil, errors.ErrUnsupported }

func resolve(_ context.Context, op string, _, dst netip.Addr) (Path, error) {
	return Path{}, opError(op, dst.String(), errors.ErrUnsupported)
}
