package main

import (
	"context"
	"io"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/verbs/netpath"
)

type netdevRow struct {
	Netdev  string       `json:"netdev"`
	Kind    string       `json:"kind"`
	Link    string       `json:"link"` // "up", "down" or "no carrier"
	MTU     int          `json:"mtu"`
	Device  string       `json:"device"`
	Port    int          `json:"port"`
	Lower   string       `json:"lower_netdev"`
	Addrs   []netip.Addr `json:"addresses"`
	RDMAMTU int          `json:"rdma_mtu"` // the largest that fits into the netdev's
}

type netdevList []netdevRow

func netdevs(ctx context.Context, args []string) (answer, error) {
	if _, err := flags(args, 0, 0, nil); err != nil {
		return nil, err
	}
	list, err := netpath.Netdevs(ctx)
	if err != nil {
		return nil, err
	}
	out := netdevList{}
	for _, n := range list {
		row := netdevRow{Netdev: n.Name, Kind: n.Kind, Link: linkState(n.Up, n.Running), MTU: n.MTU,
			Device: n.Device, Port: int(n.Port), Lower: n.Lower, Addrs: n.Addrs}
		if n.Device != "" {
			row.RDMAMTU = netpath.RoCEMTU(n.MTU)
		}
		out = append(out, row)
	}
	return out, nil
}

func linkState(up, running bool) string {
	switch {
	case !up:
		return "down"
	case !running:
		return "no carrier"
	}
	return "up"
}

func (l netdevList) text(w io.Writer) error {
	var t table
	t.row("NETDEV", "KIND", "LINK", "MTU", "DEVICE", "PORT", "STACKED ON", "RDMA MTU", "ADDRESSES")
	for _, n := range l {
		lower := n.Lower
		if lower == n.Netdev {
			lower = ""
		}
		var addrs []string
		for _, a := range n.Addrs {
			addrs = append(addrs, a.String())
		}
		t.row(n.Netdev, n.Kind, n.Link, n.MTU, n.Device, nonZero(n.Port), lower, nonZero(n.RDMAMTU), strings.Join(addrs, " "))
	}
	return t.write(w)
}
