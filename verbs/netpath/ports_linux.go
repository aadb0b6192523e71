package netpath

import (
	"errors"

	"github.com/Mellanox/rdmamap"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sysroot"
)

// rdmaPorts lists the RDMA ports that lie on netdevs, as RDMA netlink has them. If there
// is no RDMA netlink, as under a filter of system calls, rdmamap finds the device of each
// Ethernet netdev in sysfs. IPoIB netdevs, and those of devices that are not the kernel's, are found
// by their GIDs: see [readTables].
func rdmaPorts(all ifaces) ([]rdmaPort, error) {
	if sysroot.StandIn() {
		return nil, nil
	}
	var out []rdmaPort
	devices, err := nldev.Devices()
	if errors.Is(err, nldev.ErrNone) && len(rdmamap.GetRdmaDeviceList()) == 0 {
		return nil, nil
	}
	refused := err != nil
	for _, d := range devices {
		ports, err := nldev.Ports(d.Index)
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			if p.NetdevIndex != 0 {
				out = append(out, rdmaPort{d.Name, uint8(p.Num), p.NetdevIndex, p.State == portActive})
			}
		}
	}
	for _, n := range all {
		if refused && !n.IPoIB && !n.Loopback {
			if dev, err := rdmamap.GetRdmaDeviceForNetdevice(n.Name); err == nil && dev != "" {
				out = append(out, rdmaPort{device: dev, ifIndex: n.Index, active: n.Running})
			}
		}
	}
	return out, nil
}
