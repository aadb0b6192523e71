package main

import (
	"context"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"

	"github.com/goverbs/goverbs/internal/nldev"
)

type counterRow struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Name   string `json:"name"`
	Value  uint64 `json:"value"`
	Unit   string `json:"unit,omitempty"` // "bytes"; without one the name says what is counted
	Source string `json:"source"`         // "netlink", or the folder of sysfs
}

type counterList []counterRow

func counters(_ context.Context, args []string) (answer, error) {
	names, nonzero, err := counterFlags(args)
	if err != nil {
		return nil, err
	}
	devices, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	devices, err = only(devices, names, func(d kernelDevice) string { return d.Name })
	if err != nil {
		return nil, err
	}
	out := counterList{}
	for _, d := range devices {
		for port := 1; port <= d.Ports; port++ {
			out = append(out, portCounters(d, port)...)
		}
	}
	if nonzero {
		out = slices.DeleteFunc(out, func(c counterRow) bool { return c.Value == 0 })
	}
	return out, nil
}

func counterFlags(args []string) (names []string, nonzero bool, err error) {
	names, err = flags(args, 0, 255, func(fs *flag.FlagSet) {
		fs.BoolVar(&nonzero, "nonzero", false, "leave out counters that are 0")
	})
	return names, nonzero, err
}

// portCounters takes what netlink reports, and from sysfs what it does not: the
// counters of the port itself, and settings that lie among the driver's.
func portCounters(d kernelDevice, port int) counterList {
	var out counterList
	list, _ := nldev.Counters(d.Index, uint32(port)) // refused without counters
	for _, c := range list {
		out = append(out, counterRow{d.Name, port, c.Name, c.Value, "", "netlink"})
	}
	for _, dir := range []string{rdmamap.RdmaHwCountersDir, rdmamap.RdmaCountersDir} {
		path := filepath.Join(rdmamap.RdmaClassDir, d.Name, rdmamap.RdmaPortsdir, itoa(port), dir)
		for _, c := range sysfsCounters(path, d.Name, port, dir) {
			if !slices.ContainsFunc(out, func(known counterRow) bool { return known.Name == c.Name }) {
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b counterRow) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// sysfsCounters reads the counters in a folder. The driver need not have all
// for which there are files.
func sysfsCounters(path, device string, port int, source string) (out counterList) {
	files, _ := os.ReadDir(path)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(path, f.Name()))
		if err != nil {
			continue
		}
		if v, ok := counterValue(string(b)); ok {
			v, unit := inBytes(f.Name(), v)
			out = append(out, counterRow{device, port, f.Name(), v, unit, source})
		}
	}
	return out
}

// inBytes turns the counters of data, which the InfiniBand specification counts
// in words of four bytes (PortCounters, PortXmitData and PortRcvData), into
// bytes.
func inBytes(name string, value uint64) (uint64, string) {
	switch strings.TrimSuffix(name, "_64") {
	case "port_xmit_data", "port_rcv_data":
		if value > math.MaxUint64/4 {
			return math.MaxUint64, "bytes"
		}
		return 4 * value, "bytes"
	}
	return value, ""
}

func (l counterList) text(w io.Writer) error {
	if len(l) == 0 {
		_, err := io.WriteString(w, "no counters\n")
		return err
	}
	var t table
	t.row("DEVICE", "PORT", "COUNTER", "VALUE", "UNIT", "SOURCE")
	for _, c := range l {
		t.row(c.Device, c.Port, c.Name, c.Value, c.Unit, c.Source)
	}
	return t.write(w)
}
