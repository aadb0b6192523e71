package main

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

type deviceRow struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Protocol string `json:"protocol"`
	Firmware string `json:"firmware"`
	NodeGUID string `json:"node_guid"`
	Ports    int    `json:"ports"`
	File     string `json:"file"`
	Usable   bool   `json:"usable"` // libibverbs lists it, and its file can be opened
}

type deviceList []deviceRow

func devices(_ context.Context, args []string) (answer, error) {
	if _, err := flags(args, 0, 0, nil); err != nil {
		return nil, err
	}
	list, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	known, err := verbs.Devices()
	out := deviceList{}
	for _, d := range list {
		row := deviceRow{Name: d.Name, Driver: d.driver, Protocol: d.Protocol, Firmware: d.Firmware,
			NodeGUID: guid(d.NodeGUID), Ports: d.Ports, File: d.file}
		for _, k := range known {
			row.Usable = row.Usable || k.Name == d.Name && stateOf(d.file, d.number) == fileOK
		}
		out = append(out, row)
	}
	return some(out, err)
}

func (l deviceList) text(w io.Writer) error {
	if len(l) == 0 {
		return noDevices(w)
	}
	var t table
	t.row("DEVICE", "DRIVER", "PROTOCOL", "FIRMWARE", "NODE GUID", "PORTS", "FILE", "USABLE")
	for _, d := range l {
		t.row(d.Name, d.Driver, d.Protocol, d.Firmware, d.NodeGUID, d.Ports, d.File, yesNo(d.Usable))
	}
	return t.write(w)
}

// noDevices is what every list says without devices.
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
