package rdmacm

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// lookUpAddress finds the addresses of "host:port", in the resolver's order; an
// empty host is the wildcard of both families, IPv4 first.
func lookUpAddress(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, operr.New("look up", address, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, operr.New("look up", address, err)
	}
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{ip}
	} else if host == "" {
		ips = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, operr.New("look up", address, err)
	}
	out := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		out[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return out, nil
}

// tryEach calls f for each address of a peer until one does, each with its share
// of the time that is left. The error has what became of all of them.
func tryEach(ctx context.Context, address string, f func(context.Context, netip.AddrPort) error) error {
	if err := ctx.Err(); err != nil {
		return operr.New("dial", address, err)
	}
	all, err := lookUpAddress(ctx, address)
	if err != nil {
		return err
	}
	var errs []error
	for i, to := range all {
		err := func() error {
			share, cancel := ctx, context.CancelFunc(func() {})
			if end, ok := ctx.Deadline(); ok && i+1 < len(all) {
				share, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(all)-i))
			}
			defer cancel()
			err := f(share, to)
			if err != nil && share.Err() != nil && ctx.Err() == nil {
				err = operr.Class(verbs.ErrUnreachable, err) // in its share of the time
			}
			return err
		}()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return operr.Join(errs...)
}

// sockAddr is the address as C knows it.
func sockAddr(a netip.AddrPort) (cgo.SockAddr, error) {
	var scope uint32
	if zone := a.Addr().Zone(); zone != "" {
		ifi, err := net.InterfaceByName(zone)
		if err != nil {
			return cgo.SockAddr{}, operr.New("look up", a.String(), err)
		}
		scope = uint32(ifi.Index)
	}
	return cgo.SockAddrOf(a, scope), nil
}
