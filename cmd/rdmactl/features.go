package main

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

// Bits of enum ibv_device_cap_flags for which package verbs has no name.
const (
	capSRQResize  = 1 << 13
	capUDChecksum = 1 << 18
	capXRC        = 1 << 20
	capMemExt     = 1 << 21
)

type featureRow struct {
	Device  string `json:"device"`
	Feature string `json:"feature"`
	Has     string `json:"has"`  // "yes", "no", or "unknown" where libibverbs has no question for it
	Note    string `json:"note"` // its limit, or why it is missing
}

type featureList []featureRow

func features(_ context.Context, args []string) (result, error) {
	names, err := deviceArgs(args)
	if err != nil {
		return nil, err
	}
	known, err := kernelDevices()
	if err != nil {
		return nil, err
	}
	out := featureList{}
	err = each(names, func(d *verbs.Device) error {
		driver := ""
		for _, k := range known {
			if k.Name == d.Name() {
				driver = k.driver
			}
		}
		f, err := d.Features()
		if err != nil {
			return err
		}
		gids, err := d.GIDs()
		if err != nil {
			return err
		}
		port, err := d.Port(1)
		if err != nil {
			return err
		}
		for _, f := range featuresOf(f, port, gids, driver) {
			f.Device = d.Name()
			out = append(out, f)
		}
		return nil
	})
	if err != nil && len(out) == 0 {
		return nil, err // an empty list would say that there is nothing
	}
	return out, err
}

// featuresOf lists what a device can, by what it reports itself.
func featuresOf(a verbs.Features, p verbs.Port, gids []verbs.GIDEntry, driver string) []featureRow {
	var out []featureRow
	add := func(name string, has bool, with, without string) {
		row := featureRow{Feature: name, Has: yesNo(has), Note: with}
		if !has {
			row.Note = without
		}
		out = append(out, row)
	}
	flag := func(name string, mask uint32, with, without string) { add(name, a.CapFlags&mask != 0, with, without) }

	add("RDMA READ", a.MaxReadAtomic > 0, fmt.Sprintf("%d outstanding as target, %d as initiator", a.MaxReadAtomic, a.MaxInitRead),
		"the device takes no READ (max_qp_rd_atom is 0)")
	switch a.Atomic {
	case verbs.AtomicNone:
		add("atomics", false, "", "the device has none")
	case verbs.AtomicHCA:
		add("atomics", true, "atomic among this device's queue pairs only, not with the host's CPUs", "")
	default:
		add("atomics", true, "atomic with the host's CPUs too", "")
	}
	v2 := 0
	for _, g := range gids {
		if g.Type == verbs.GIDRoCEv2 {
			v2++
		}
	}
	if p.LinkLayer == verbs.LinkEthernet {
		add("RoCE v2", v2 > 0, fmt.Sprintf("%d GIDs", v2), "no GID of this type: the device is too old, or its netdev has no address")
	} else {
		add("RoCE v2", false, "", fmt.Sprintf("the link is %v", p.LinkLayer))
	}
	why := "the device ends there"
	if p.MaxMTU == verbs.MTU4096 {
		why = "the netdev's MTU limits it; 4096 needs 4200"
		if p.LinkLayer != verbs.LinkEthernet {
			why = "the subnet manager set it"
		}
	}
	add("MTU 4096", p.ActiveMTU == verbs.MTU4096, "", fmt.Sprintf("active MTU is %d: %s", p.ActiveMTU.Bytes(), why))
	add("several completion vectors", a.CompletionVecs > 1, fmt.Sprintf("%d", a.CompletionVecs), "all completion events come to one CPU")
	add("shared receive queues", a.MaxSRQ > 0, fmt.Sprintf("up to %d", a.MaxSRQ), "the device has none")
	flag("SRQ resize", capSRQResize, "", "not offered by the driver")
	add("memory windows", a.Window1 || a.Window2, windowTypes(a), "not offered by the driver")
	add("on-demand paging", a.OnDemand, "memory need not be pinned", "not offered by the driver")
	flag("send with invalidate", capMemExt, "", "no memory management extensions")
	flag("XRC", capXRC, "", "not offered by the driver")
	flag("UD checksum offload", capUDChecksum, "", "not offered by the driver")
	add("completion timestamps", a.TimestampMask != 0, fmt.Sprintf("device clock of %d kHz", a.ClockKHz), "the device has no clock for them")
	add("completion moderation", a.MaxModerate > 0, fmt.Sprintf("up to %d completions, %v", a.MaxModerate, a.MaxModeration), "not offered by the driver")
	add("rate limit", a.MaxRate > 0, fmt.Sprintf("%d to %d kbit/s", a.MinRate, a.MaxRate), "not offered by the driver")
	return append(out, dcFeature(a, driver), srdFeature(a, driver))
}

func windowTypes(a verbs.Features) string {
	switch {
	case a.Window1 && a.Window2:
		return "types 1 and 2B"
	case a.Window2:
		return "type 2B"
	}
	return "type 1"
}

// dcFeature: mlx5dv reports the streams of a DC initiator, but not whether there
// are initiators at all.
func dcFeature(a verbs.Features, driver string) featureRow {
	f := featureRow{Feature: "DC (dynamically connected)", Has: "no", Note: "needs an mlx5 device"}
	switch {
	case a.Mlx5 != nil && a.Mlx5.Streams > 0:
		f.Has, f.Note = "yes", fmt.Sprintf("%d streams of an initiator", a.Mlx5.Streams)
	case a.Mlx5 != nil:
		f.Has, f.Note = "unknown", "from Connect-IB on; making an initiator tells. It has no streams"
	case driver == "mlx5":
		f.Note = "libmlx5.so.1 is missing (Debian: ibverbs-providers)"
	}
	return f
}

func srdFeature(a verbs.Features, driver string) featureRow {
	f := featureRow{Feature: "SRD (reliable datagrams)", Has: "no", Note: "needs an efa device"}
	switch {
	case a.EFA != nil:
		f.Has, f.Note = "yes", fmt.Sprintf("READ %s, WRITE %s, up to %d bytes", yesNo(a.EFA.Read), yesNo(a.EFA.Write), a.EFA.MaxRDMA)
	case driver == "efa":
		f.Note = "libefa.so.1 is missing (Debian: ibverbs-providers)"
	}
	return f
}

func (l featureList) text(w io.Writer) error {
	if len(l) == 0 {
		return noDevices(w)
	}
	var t table
	t.row("DEVICE", "FEATURE", "HAS", "NOTE")
	for _, f := range l {
		t.row(f.Device, f.Feature, f.Has, f.Note)
	}
	return t.write(w)
}
