package main

import (
	"context"
	"io"

	"github.com/goverbs/goverbs/verbs"
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
			for _, n := range netdevs {
				if n.Index == g.IfIndex {
					row.Netdev = n.Name
				}
			}
			out = append(out, row)
		}
		return err
	})
	return some(out, err)
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
