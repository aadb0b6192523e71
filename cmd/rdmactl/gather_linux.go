package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/Mellanox/rdmamap"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

const capIPCLock = 14

func gather(ctx context.Context) (facts, error) {
	f := limits()
	f.UVerbs, f.UCM, f.Shared = exists(rdmamap.RdmaUverbsDir), exists("/sys/class/misc/rdma_cm"), true
	f.UCMFile = stateOf(rdmamap.RdmaUcmDevice, 0)
	f.Cards, f.HugeLimit = cards(), hugeLimit("/")

	listed, err := verbs.Devices()
	if err != nil {
		f.LibraryError = err.Error()
	}
	shared, err := nldev.Shared()
	switch {
	case errors.Is(err, nldev.ErrNone):
		f.NoRDMA = true
		if len(listed) == 0 {
			return f, nil
		}
	case err == nil:
		f.Shared = shared
	}
	known, err := kernelDevices()
	if err != nil {
		return f, err
	}
	netdevs, err := netpath.Netdevs(ctx)
	if err != nil {
		return f, err
	}
	for _, k := range known {
		d := deviceFacts{Name: k.Name, Driver: k.driver, Protocol: k.Protocol, File: k.file}
		if d.File != "" {
			d.FileState = stateOf(d.File, k.number)
		}
		for _, l := range listed {
			d.Listed = d.Listed || l.Name == d.Name
		}
		if d.Ports, err = kernelPorts(k.Index, d.Name, netdevs); err != nil {
			return f, err
		}
		if d.Listed {
			if err := d.ask(); err != nil {
				d.OpenError = err.Error()
			}
		}
		for i := range d.Ports {
			d.Ports[i].Others = others(d.Ports[i], d.Name, netdevs)
		}
		f.Devices = append(f.Devices, d)
	}
	if f.IPoIB = withoutDevice(netdevs); f.NoRDMA {
		f.IPoIB = nil
	}
	for _, l := range listed {
		if slices.ContainsFunc(known, func(k kernelDevice) bool { return k.Name == l.Name }) {
			continue
		}
		d := deviceFacts{Name: l.Name, Driver: "simulated", FileState: fileOK, Listed: true, Simulated: true}
		if err := d.ask(); err != nil {
			d.OpenError = err.Error()
		}
		f.Devices = append(f.Devices, d)
	}
	return f, nil
}

// withoutDevice returns the interfaces of IP over InfiniBand without a device that is found.
func withoutDevice(netdevs []netpath.Netdev) (names []string) {
	for _, n := range netdevs {
		if n.IPoIB && n.Up && n.Device == "" {
			names = append(names, n.Name)
		}
	}
	return names
}

// others returns the netdevs by which a port is reached besides its own.
func others(p portFacts, device string, netdevs []netpath.Netdev) (out []netdevFacts) {
	for _, n := range netdevs {
		has := n.Device == device && int(n.Port) == p.Num && n.Name != p.Netdev
		for _, g := range p.GIDs {
			has = has || p.Netdev == "" && g.Type == verbs.GIDRoCEv2 && !g.Addr.IsLinkLocalUnicast() && slices.Contains(n.Addrs, g.Addr)
		}
		if has && len(n.Addrs) > 0 {
			out = append(out, netdevFacts{n.Name, n.MTU})
		}
	}
	return out
}

// kernelPorts returns the ports as far as one can tell without opening the device.
func kernelPorts(index uint32, device string, netdevs []netpath.Netdev) ([]portFacts, error) {
	list, err := nldev.Ports(index)
	var out []portFacts
	for _, p := range list {
		pf := portFacts{Num: p.Num, State: verbs.PortState(p.State)}
		if n, ok := netdevOf(netdevs, device, p.Num); ok {
			pf.Netdev, pf.Up, pf.Running, pf.NetdevMTU = n.Name, n.Up, n.Running, n.MTU
		}
		out = append(out, pf)
	}
	return out, err
}

// ask opens the device and completes the facts of its ports.
func (d *deviceFacts) ask() (err error) {
	dev, err := verbs.Open(d.Name, verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	gids, err := dev.GIDs()
	if err != nil {
		return err
	}
	for i := range d.Ports {
		p := &d.Ports[i]
		port, err := dev.Port(uint8(p.Num))
		if err != nil {
			return err
		}
		p.Known, p.State, p.ActiveMTU, p.MaxMTU = true, port.State, port.ActiveMTU.Bytes(), port.MaxMTU.Bytes()
		for _, g := range gids {
			if int(g.Port) == p.Num {
				p.GIDs = append(p.GIDs, gidFacts{g.Type, g.GID.Addr()})
			}
		}
	}
	return nil
}

// stateOf tries to open a device file. A number other than 0 is what the kernel
// says that the file must have.
func stateOf(path string, number uint64) fileState {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); errors.Is(err, fs.ErrNotExist) {
		return fileMissing
	} else if err == nil && number != 0 && st.Rdev != number {
		return fileStale
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return fileOK
	case errors.Is(err, fs.ErrPermission):
		return fileDenied
	case errors.Is(err, fs.ErrNotExist):
		return fileMissing
	}
	return fileBroken
}

func readLimit(resource int) limit {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return limit{unlimited, unlimited}
	}
	return limit{r.Cur, r.Max}
}

// limits returns the facts about resource limits.
func limits() facts {
	status, _ := os.ReadFile("/proc/self/status")
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	return facts{Memlock: readLimit(unix.RLIMIT_MEMLOCK), Files: readLimit(unix.RLIMIT_NOFILE),
		LocksAll: hasCapability(string(status), capIPCLock) && firstUserNamespace(string(uidMap))}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cards lists the network cards that a driver or its absence marks as possible
// RDMA devices.
func cards() (out []cardFacts) {
	dirs, _ := filepath.Glob(rdmamap.PciDevDir + "/*")
	for _, dir := range dirs {
		read := func(name string) uint32 {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			v, _ := pciID(string(b))
			return v
		}
		c := cardFacts{Address: filepath.Base(dir), Vendor: read("vendor"), Device: read("device")}
		if link, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
			c.Driver = filepath.Base(link)
		}
		if !c.candidate(read("class")) {
			continue
		}
		c.HasRDMA = len(rdmamap.GetRdmaDevicesForPcidev(c.Address)) > 0
		out = append(out, c)
	}
	return out
}
