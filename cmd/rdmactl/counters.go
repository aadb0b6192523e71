package main

import (
	"context"
	"flag"
	"io"
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
	Source string `json:"source"` // "netlink", or the folder of sysfs
}

type counterList []counterRow

func counters(_ context.Context, args []string) (answer, error) {
	all := true
	names, err := flags(args, 0, 255, func(fs *flag.FlagSet) {
		fs.BoolFunc("nonzero", "leave out counters that are 0", func(string) error { all = false; return nil })
	})
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
	if !all {
		out = slices.DeleteFunc(out, func(c counterRow) bool { return c.Value == 0 })
	}
	return out, nil
}

// portCounters takes what netlink tells, and from sysfs what it does not: the
// counters of the port itself, and settings that lie among the driver's.
func portCounters(d kernelDevice, port int) counterList {
	var out counterList
	list, _ := nldev.Counters(d.Index, uint32(port)) // refused without counters
	for _, c := range list {
		out = append(out, counterRow{d.Name, port, c.Name, c.Value, "netlink"})
	}
	for _, dir := range []string{rdmamap.RdmaHwCountersDir, rdmamap.RdmaCountersDir} {
		path := filepath.Join(rdmamap.RdmaClassDir, d.Name, rdmamap.RdmaPortsdir, itoa(port), dir)
		files, _ := os.ReadDir(path)
		for _, f := range files {
			if slices.ContainsFunc(out, func(c counterRow) bool { return c.Name == f.Name() }) {
				continue
			}
			b, err := os.ReadFile(filepath.Join(path, f.Name()))
			if err != nil {
				continue // the driver need not have all of them
			}
			if v, ok := counterValue(string(b)); ok {
				out = append(out, counterRow{d.Name, port, f.Name(), v, dir})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b counterRow) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (l counterList) text(w io.Writer) error {
	if len(l) == 0 {
		_, err := io.WriteString(w, "no counters\n")
		return err
	}
	var t table
	t.row("DEVICE", "PORT", "COUNTER", "VALUE", "SOURCE")
	for _, c := range l {
		t.row(c.Device, c.Port, c.Name, c.Value, c.Source)
	}
	return t.write(w)
}
