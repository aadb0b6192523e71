package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/internal/version"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// place is a port of a device, and the local address of the queue pairs there.
type place struct {
	device string
	port   uint8
	gid    verbs.GIDEntry
}

// portArg parses DEVICE or DEVICE:PORT; the port is 0 if there is none.
func portArg(arg string) (p place, err error) {
	name, port, found := strings.Cut(arg, ":")
	p.device = name
	if found {
		n, err := strconv.ParseUint(port, 10, 8)
		if err != nil || n == 0 {
			return p, usageError(fmt.Sprintf("%q is no port number", port))
		}
		p.port = uint8(n)
	}
	return p, nil
}

// find completes a place: if it names no device, by the one that $RDMA_DEVICE
// names or else the first that has an active port with a GID, and by that device's
// first such port.
func (p place) find() (place, error) {
	p.device = cmp.Or(p.device, os.Getenv("RDMA_DEVICE"))
	list, err := verbs.Devices()
	if err != nil && p.device != "" {
		err = fmt.Errorf("look for %s: %w", p.device, err)
	}
	if err != nil {
		return p, err
	}
	var names []string
	if p.device != "" {
		names = []string{p.device}
	} else {
		for _, d := range list {
			names = append(names, d.Name)
		}
	}
	var found *place
	err = eachPort(names, func(d *verbs.Device, port verbs.Port) error {
		if found != nil || p.port != 0 && port.Num != p.port || port.State != verbs.PortActive {
			return nil
		}
		if gid, err := d.FindGID(verbs.GIDQuery{Port: port.Num}); err == nil {
			found = &place{d.Name(), port.Num, gid}
		}
		return nil
	})
	if found != nil {
		return *found, nil
	}
	if err == nil {
		err = fmt.Errorf("%w: no active port with a GID; \"rdmactl doctor\" says why", verbs.ErrNoDevice)
		if p.device != "" {
			err = fmt.Errorf("%s: %w", p.device, err)
		}
	}
	return p, err
}

// aboutPort describes where a self-test runs. Addresses are left out unless addresses is
// true.
func aboutPort(p place, addresses bool) (a about, err error) {
	a = about{Device: p.device, Port: int(p.port), DriverVersion: driverVersion(p.device), Kernel: "unknown", Goverbs: version.Of("rdmactl")}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		a.Kernel = strings.TrimSpace(string(b))
	}
	known, err := kernelDevices()
	if err != nil {
		return a, err
	}
	i := slices.IndexFunc(known, func(k kernelDevice) bool { return k.Name == p.device })
	if i < 0 { // the kernel has no part in the results
		a.Driver, a.Kernel = "simulated", "none"
	} else {
		a.Driver, a.Protocol = cmp.Or(known[i].driver, "unknown"), known[i].Protocol
	}
	err = each([]string{p.device}, func(d *verbs.Device) error {
		if a.Features, err = d.Features(); err != nil {
			return err
		}
		port, err := d.Port(p.port)
		if err != nil {
			return err
		}
		gids, err := d.GIDs()
		if err != nil {
			return err
		}
		a.LinkLayer, a.MTU = port.LinkLayer.String(), port.ActiveMTU.Bytes()
		for _, g := range gids {
			row := runGID{Port: int(g.Port), Index: int(g.Index), Type: g.Type.String(), Kind: gidKind(g)}
			if addresses {
				row.Address = g.GID.String()
			}
			a.GIDs = append(a.GIDs, row)
		}
		return nil
	})
	a.Firmware, a.VendorID, a.VendorPart = a.Features.Firmware, a.Features.VendorID, a.Features.VendorPartID
	if !addresses { // it is made of a hardware address
		a.Features.NodeGUID = 0
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	a.RDMACore = rdmaCoreVersion(string(maps))
	return a, err
}

// testable refuses devices with queue pairs that package verbs cannot connect, or that carry no
// data from here.
func testable(a about, netdevs []netpath.Netdev) error {
	if _, here := netdevOf(netdevs, a.Device, a.Port); a.Driver == "rxe" && !here {
		return fmt.Errorf("%w: %s: %s: %s", verbs.ErrUnsupported, a.Device, noSoftRoCE, noSoftRoCERemedy)
	}
	if a.Protocol == "iw" {
		return fmt.Errorf("%w: %s speaks iWARP; a self-test needs RoCE or InfiniBand (irdma: devlink dev param, enable_roce)", verbs.ErrUnsupported, a.Device)
	}
	return nil
}

// driverVersion returns what the module of a device's driver says of itself.
// Drivers of the kernel's own source mostly say nothing.
func driverVersion(device string) string {
	dir := filepath.Join("/sys/class/infiniband", device, "device/driver/module")
	if b, err := os.ReadFile(filepath.Join(dir, "version")); err == nil {
		return strings.TrimSpace(string(b))
	}
	return "in-tree"
}

var libibverbs = regexp.MustCompile(`/libibverbs\.so\.\d+\.\d+\.(\d+\.\d+)\n`)

// rdmaCoreVersion returns the version of rdma-core from the mapped files of this
// process: libibverbs has it in its file name alone.
func rdmaCoreVersion(maps string) string {
	if m := libibverbs.FindStringSubmatch(maps); m != nil {
		return m[1]
	}
	return "unknown"
}
