package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// host is the open device that all tests of a run use.
type host struct {
	name string
	dev  *verbs.Device
	gid  verbs.GIDEntry
	mtu  verbs.MTU // of the GID's netdev and the port
}

// openHost opens the device that was asked for. Without a name it is the one
// that carries the local address of the TCP connection, or else the first that
// has an address.
func openHost(o *options, local net.Addr) (*host, error) {
	var addr netip.Addr
	if tcp, ok := local.(*net.TCPAddr); ok {
		addr = tcp.AddrPort().Addr().Unmap()
	}
	if o.device != "" {
		return openDevice(o, o.device, addr)
	}
	if at, err := verbs.LookupAddr(context.Background(), addr); err == nil {
		if int(at.Port) == o.port {
			return openDevice(o, at.Device, addr)
		}
	}
	list, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w on this host", verbs.ErrNoDevice)
	}
	var first *host
	var failures []error
	for _, d := range list {
		h, err := openDevice(o, d.Name, addr)
		switch {
		case err != nil:
			failures = append(failures, err)
		case first == nil:
			first = h
		default:
			failures = append(failures, h.close())
		}
	}
	if first == nil {
		return nil, errors.Join(failures...)
	}
	return first, nil
}

func openDevice(o *options, name string, addr netip.Addr) (*host, error) {
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
	if err != nil {
		return nil, err
	}
	h := &host{name: name, dev: dev}
	if h.gid, err = h.findGID(o, addr); err == nil {
		h.mtu, err = dev.LocalMTU(h.gid)
	}
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return h, nil
}

// findGID takes the GID of the index asked for, or the one of the address over
// which the peers talk TCP, or the likeliest one of the port.
func (h *host) findGID(o *options, addr netip.Addr) (verbs.GIDEntry, error) {
	port := uint8(o.port)
	if o.gidIndex < 0 {
		return h.dev.LocalGID(verbs.GIDQuery{Addr: addr, Port: port})
	}
	all, err := h.dev.GIDs()
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	for _, e := range all {
		if int(e.Index) == o.gidIndex && e.Port == port {
			return e, nil
		}
	}
	return verbs.GIDEntry{}, fmt.Errorf("-x %d: port %d of %s has no such GID; there are %v", o.gidIndex, port, h.name, all)
}

func (h *host) close() error { return h.dev.Close() }
