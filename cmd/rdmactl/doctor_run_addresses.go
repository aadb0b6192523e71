package main

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

var addressTests = []selfTest{
	{feature: "address to device, port, GID, MTU, neighbour", run: tryLookup},
	{feature: "peers' addresses by TCP", run: tryExchange},
}

// addr returns an IP address of a port: that of its GID, or on InfiniBand and EFA
// that of its netdev.
func (b *bench) addr(p place) (netip.Addr, error) {
	known, err := kernelDevices()
	if err != nil {
		return netip.Addr{}, err
	}
	if !slices.ContainsFunc(known, func(k kernelDevice) bool { return k.Name == p.device }) {
		return netip.Addr{}, notTried("the kernel does not know the device: it is simulated")
	}
	usable := func(a netip.Addr) bool { return a.IsValid() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() }
	if a := p.gid.GID.Addr(); p.gid.Type == verbs.GIDRoCEv2 && usable(a) {
		return a, nil
	}
	netdevs, err := netpath.Netdevs(b.ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, n := range netdevs {
		if n.Device != p.device || n.Port != 0 && n.Port != p.port {
			continue
		}
		for _, a := range n.Addrs {
			if usable(a) {
				return a, nil
			}
		}
	}
	return netip.Addr{}, notTried("the port has no IP address; it needs one that is not link-local")
}

func tryLookup(b *bench) (string, error) {
	a, err := b.addr(b.here)
	if err != nil {
		return "", err
	}
	l, err := verbs.LookupAddr(b.ctx, a)
	if err != nil {
		return "", err
	}
	if err := errors.Join(same("the device", l.Device, b.here.device), same("the port", l.Port, b.here.port)); err != nil {
		return "", err
	}
	n, err := verbs.LookupNetdev(b.ctx, l.Netdev)
	if err != nil {
		return "", err
	}
	return "the neighbour is another host's, and was not asked for", same("the netdev's device", n.Device, b.here.device)
}

// tryExchange connects two queue pairs by the addresses that they tell each
// other over TCP, on the loopback interface.
func tryExchange(b *bench) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", notTried("no TCP on the loopback interface: " + err.Error())
	}
	defer l.Close()
	x, y, err := b.ends(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = errors.Join(y.exchange(conn, nil), conn.Close())
		}
		served <- err
	}()
	var from verbs.Region
	var d net.Dialer
	conn, err := d.DialContext(b.ctx, "tcp", l.Addr().String())
	if err == nil {
		err = errors.Join(x.exchange(conn, &from), conn.Close())
	} else {
		l.Close()
	}
	if err := errors.Join(err, <-served); err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:64])
	return "", x.reads(from, y.mr.Bytes())
}

// exchange connects the queue pair to its peer, and sets *peer, if there is one, to its memory.
func (e *end) exchange(conn net.Conn, peer *verbs.Region) error {
	local, err := e.qp.Endpoint()
	if err != nil {
		return err
	}
	local.Regions = []verbs.Region{e.region()}
	remote, err := verbs.Exchange(e.ctx, conn, local)
	if err != nil {
		return err
	}
	if peer != nil {
		*peer = remote.Regions[0]
	}
	return e.qp.Connect(remote, verbs.ConnectConfig{Retries: 6})
}
