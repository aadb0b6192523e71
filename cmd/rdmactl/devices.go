package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// deviceRow is a device with its ports.
type deviceRow struct {
	Name     string    `json:"name"`
	Driver   string    `json:"driver"`
	Protocol string    `json:"protocol"`
	Firmware string    `json:"firmware"`
	NodeGUID string    `json:"node_guid"`
	File     string    `json:"file"`
	Usable   bool      `json:"usable"` // libibverbs lists it, and its file can be opened
	Ports    []portRow `json:"ports"`  // none if it cannot be opened
}

type portRow struct {
	Port      int      `json:"port"`
	State     string   `json:"state"`
	LinkLayer string   `json:"link_layer"`
	ActiveMTU int      `json:"active_mtu"`
	MaxMTU    int      `json:"max_mtu"`
	LID       int      `json:"lid"`
	Netdev    string   `json:"netdev"`
	NetdevMTU int      `json:"netdev_mtu"`
	GIDs      []gidRow `json:"gids"`
}

type gidRow struct {
	Index  int    `json:"index"`
	Type   string `json:"type"`
	GID    string `json:"gid"`
	Netdev string `json:"netdev"`
}

type deviceList []deviceRow

func devices(ctx context.Context, args []string) (result, error) {
	names, err := deviceArgs(args)
	if err != nil {
		return nil, err
	}
	all, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	all, err = only(all, names)
	if err != nil {
		return nil, err
	}
	netdevs, err := netpath.Netdevs(ctx)
	if err != nil {
		return nil, err
	}
	known, listErr := verbs.Devices()
	out, failures := deviceList{}, []error{listErr}
	for _, d := range all {
		row := deviceRow{Name: d.Name, Driver: d.driver, Protocol: d.Protocol, Firmware: d.Firmware, NodeGUID: guid(d.NodeGUID), File: d.file, Ports: []portRow{}}
		row.Usable = stateOf(d.file, d.number) == fileOK &&
			slices.ContainsFunc(known, func(k verbs.DeviceInfo) bool { return k.Name == d.Name })
		if row.Usable {
			row.Ports, err = portsOf(d.Name, netdevs)
			failures = append(failures, err)
		}
		out = append(out, row)
	}
	err = errors.Join(failures...)
	if err != nil && len(out) == 0 {
		return nil, err
	}
	return out, err
}

func portsOf(device string, netdevs []netpath.Netdev) (out []portRow, err error) {
	err = each([]string{device}, func(d *verbs.Device) error {
		gids, err := d.GIDs()
		if err != nil {
			return err
		}
		for n := 1; n <= d.Attr().Ports; n++ {
			p, err := d.Port(uint8(n))
			if err != nil {
				return err
			}
			row := portRow{Port: n, State: p.State.String(), LinkLayer: p.LinkLayer.String(),
				ActiveMTU: p.ActiveMTU.Bytes(), MaxMTU: p.MaxMTU.Bytes(), LID: int(p.LID), GIDs: []gidRow{}}
			if lower, ok := netdevOf(netdevs, device, n); ok {
				row.Netdev, row.NetdevMTU = lower.Name, lower.MTU
			}
			for _, g := range gids {
				if int(g.Port) == n {
					owner, _ := ownerOf(g, netdevs)
					row.GIDs = append(row.GIDs, gidRow{int(g.Index), g.Type.String(), g.GID.String(), owner.Name})
				}
			}
			out = append(out, row)
		}
		return nil
	})
	return out, err
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

// text writes a row for each port, and then one for each GID.
func (l deviceList) text(w io.Writer) error {
	if len(l) == 0 {
		return noDevices(w)
	}
	var ports, gids table
	ports.row("DEVICE", "DRIVER", "FIRMWARE", "FILE", "USABLE", "PORT", "STATE", "LINK", "MTU", "MAX MTU", "NETDEV", "NETDEV MTU")
	gids.row("DEVICE", "PORT", "INDEX", "TYPE", "GID", "NETDEV")
	for _, d := range l {
		if len(d.Ports) == 0 {
			ports.row(d.Name, d.Driver, d.Firmware, d.File, yesNo(d.Usable), "", "", "", "", "", "", "")
		}
		for _, p := range d.Ports {
			ports.row(d.Name, d.Driver, d.Firmware, d.File, yesNo(d.Usable), p.Port, p.State, p.LinkLayer,
				p.ActiveMTU, p.MaxMTU, p.Netdev, nonZero(p.NetdevMTU))
			for _, g := range p.GIDs {
				gids.row(d.Name, p.Port, g.Index, g.Type, g.GID, g.Netdev)
			}
		}
	}
	if err := ports.write(w); err != nil || len(gids.rows) == 1 {
		return err
	}
	fmt.Fprintln(w)
	return gids.write(w)
}

// noDevices is what a list says without devices.
func noDevices(w io.Writer) error {
	_, err := fmt.Fprintln(w, "no RDMA devices; \"rdmactl doctor\" says why")
	return err
}

func guid(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
