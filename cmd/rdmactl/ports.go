package main

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

type portRow struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`
	State     string `json:"state"`
	LinkLayer string `json:"link_layer"`
	ActiveMTU int    `json:"active_mtu"`
	MaxMTU    int    `json:"max_mtu"`
	LID       int    `json:"lid"`
	Netdev    string `json:"netdev"`
	NetdevMTU int    `json:"netdev_mtu"`
}

type portList []portRow

func ports(ctx context.Context, args []string) (answer, error) {
	names, netdevs, err := devicesAndNetdevs(ctx, args)
	if err != nil {
		return nil, err
	}
	out := portList{}
	err = eachPort(names, func(d *verbs.Device, p verbs.Port) error {
		row := portRow{Device: d.Name(), Port: int(p.Num), State: p.State.String(), LinkLayer: p.LinkLayer.String(),
			ActiveMTU: p.ActiveMTU.Bytes(), MaxMTU: p.MaxMTU.Bytes(), LID: int(p.LID)}
		if n, ok := netdevOf(netdevs, d.Name(), int(p.Num)); ok {
			row.Netdev, row.NetdevMTU = n.Name, n.MTU
		}
		out = append(out, row)
		return nil
	})
	return some(out, err)
}

// netdevOf finds the netdev on which a port lies, not those stacked on it.
func netdevOf(list []netpath.Netdev, device string, port int) (netpath.Netdev, bool) {
	for _, n := range list {
		if n.Device == device && (n.Port == 0 || int(n.Port) == port) && n.Lower == n.Name {
			return n, true
		}
	}
	return netpath.Netdev{}, false
}

func (l portList) text(w io.Writer) error {
	if len(l) == 0 {
		return noDevices(w)
	}
	var t table
	t.row("DEVICE", "PORT", "STATE", "LINK", "MTU", "MAX MTU", "LID", "NETDEV", "NETDEV MTU")
	for _, p := range l {
		t.row(p.Device, p.Port, p.State, p.LinkLayer, p.ActiveMTU, p.MaxMTU, p.LID, p.Netdev, nonZero(p.NetdevMTU))
	}
	return t.write(w)
}

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
