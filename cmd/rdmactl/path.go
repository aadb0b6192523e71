package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// pathResult is the way to an address.
type pathResult struct {
	Destination netip.Addr `json:"destination"`
	Source      netip.Addr `json:"source"`
	Device      string     `json:"device"`
	Port        int        `json:"port"`
	GIDIndex    int        `json:"gid_index"`
	GID         string     `json:"gid"`
	GIDType     string     `json:"gid_type"`
	Netdev      string     `json:"netdev"`
	Lower       string     `json:"lower_netdev"`
	VLAN        int        `json:"vlan"` // 0 for none
	NextHop     netip.Addr `json:"next_hop"`
	Loopback    bool       `json:"loopback"`
	MAC         string     `json:"mac"`
	Neighbour   string     `json:"neighbour"`
	MTU         int        `json:"mtu"`
	PortMTU     int        `json:"port_mtu"`
	NetdevMTU   int        `json:"netdev_mtu"`
	RouteMTU    int        `json:"route_mtu"`
}

func path(ctx context.Context, args []string) (result, error) {
	var from netip.Addr
	args, err := flags(args, 1, 1, func(fs *flag.FlagSet) {
		fs.Func("from", "source `address`", func(s string) (err error) {
			from, err = address(s)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	to, err := address(args[0])
	if err != nil {
		return nil, err
	}
	p, err := verbs.ResolvePathFrom(ctx, from, to)
	if err != nil {
		return nil, err
	}
	return pathResult{
		Destination: p.Dst, Source: p.Src, Device: p.Device, Port: int(p.Port),
		GIDIndex: int(p.GID.Index), GID: p.GID.GID.String(), GIDType: p.GID.Type.String(),
		Netdev: p.Netdev, Lower: p.Lower, VLAN: p.VLAN, NextHop: p.NextHop, Loopback: p.Loopback,
		MAC: p.MAC.String(), Neighbour: p.Neighbour.String(),
		MTU: p.MTU.Bytes(), PortMTU: p.ActiveMTU.Bytes(), NetdevMTU: p.NetdevMTU, RouteMTU: p.RouteMTU,
	}, nil
}

func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		err = usageError(fmt.Sprintf("%q is not an IP address: give one without a port", s))
	}
	return a, err
}

func (p pathResult) text(w io.Writer) error {
	var t table
	t.row("destination", p.Destination)
	t.row("source", p.Source)
	t.row("device", p.Device)
	t.row("port", p.Port)
	t.row("gid", p.GID)
	t.row("gid index", p.GIDIndex)
	t.row("gid type", p.GIDType)
	t.row("netdev", p.Netdev)
	switch p.Lower {
	case p.Netdev:
	case "":
		t.row("stacked on", "a netdev of another network namespace")
	default:
		t.row("stacked on", p.Lower)
	}
	if p.VLAN != 0 {
		t.row("vlan", p.VLAN)
	}
	if p.Loopback {
		t.row("loopback", "the destination is on this host")
	}
	t.row("next hop", p.NextHop)
	t.row("mac", p.MAC)
	t.row("neighbour", p.Neighbour)
	t.row("rdma mtu", p.MTU)
	t.row("port mtu", p.PortMTU)
	t.row("netdev mtu", p.NetdevMTU)
	if p.RouteMTU != 0 {
		t.row("route mtu", p.RouteMTU)
	}
	return t.write(w)
}
