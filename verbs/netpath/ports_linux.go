package netpath

import (
	"errors"

	"github.com/Mellanox/rdmamap"

	"github.com/goverbs/goverbs/internal/nldev"
)

// portActive is the state of a port that carries packets (IB_PORT_ACTIVE).
const portActive = 4

// rdmaPorts lists the RDMA ports that lie on netdevs. rdmamap finds the device
// of an IPoIB netdev by its GUID, which the kernel's list does not tell. Of an
// Ethernet netdev it would read the whole GID table by files, so it is asked
// only if there is no RDMA netlink, as under a filter of system calls.
func rdmaPorts(all ifaces) ([]rdmaPort, error) {
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
		if n.IPoIB || refused && !n.loopback {
			if dev, err := rdmamap.GetRdmaDeviceForNetdevice(n.Name); err == nil && dev != "" {
				out = append(out, rdmaPort{device: dev, ifIndex: n.Index, active: n.Running})
			}
		}
	}
	return out, nil
}
