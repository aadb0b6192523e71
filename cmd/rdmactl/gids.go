package main

import (
	"context"
	"io"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

type gidRow struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Index  int    `json:"index"`
	Type   string `json:"type"`
	GID    string `json:"gid"`
	Netdev string `json:"netdev"`
}

type gidList []gidRow

func gids(ctx context.Context, args []string) (answer, error) {
	names, netdevs, err := devicesAndNetdevs(ctx, args)
	if err != nil {
		return nil, err
	}
	out := gidList{}
	err = each(names, func(d *verbs.Device) error {
		list, err := d.GIDs()
		for _, g := range list {
			row := gidRow{Device: d.Name(), Port: int(g.Port), Index: int(g.Index), Type: g.Type.String(), GID: g.GID.String()}
			n, _ := ownerOf(g, netdevs)
			row.Netdev = n.Name
			out = append(out, row)
		}
		return err
	})
	return some(out, err)
}

// ownerOf returns the netdev of an entry of a GID table, without a name if it has none. It
// reports false if the netdev is of another network namespace: interface numbers repeat.
func ownerOf(g verbs.GIDEntry, netdevs []netpath.Netdev) (netpath.Netdev, bool) {
	for _, n := range netdevs {
		if n.Index == g.IfIndex && n.HasGID(g.GID.Addr()) {
			return n, true
		}
	}
	return netpath.Netdev{}, g.IfIndex == 0
}

func (l gidList) text(w io.Writer) error {
	if len(l) == 0 {
		return noDevices(w)
	}
	var t table
	t.row("DEVICE", "PORT", "INDEX", "TYPE", "GID", "NETDEV")
	for _, g := range l {
		t.row(g.Device, g.Port, g.Index, g.Type, g.GID, g.Netdev)
	}
	return t.write(w)
}
