package topo

import (
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// More of RDMA netlink: what processes hold.
const (
	cmdGet       = 1
	attrResPID   = 28
	attrKernName = 29
)

// kinds are the tracked objects: command to list them, and the attribute that
// holds the table of entries.
var kinds = []struct {
	name  string
	cmd   uint16
	table uint16
}{
	{"qp", 10, 19}, {"cm_id", 11, 30}, {"cq", 12, 35}, {"mr", 13, 40}, {"pd", 14, 46}, {"ctx", 22, 86}, {"srq", 23, 88},
}

// Resource is an RDMA object that a process holds, as "rdma resource show"
// lists it.
type Resource struct {
	Device string
	Kind   string // qp, cm_id, cq, mr, pd, ctx, srq
	PID    int    // the kernel's: that of the thread which made it; 0 when that thread has ended
}

// ThreadOf tells whether pid is a thread of a process.
func ThreadOf(pid, process int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", process, pid))
	return err == nil
}

// rdmaDevices lists the RDMA devices by their index.
func rdmaDevices() (map[uint32]string, error) {
	msgs, err := nldev(cmdGet, netlink.Dump, nil)
	if err != nil {
		return nil, wrap(err, "list RDMA devices")
	}
	devices := make(map[uint32]string)
	for _, m := range msgs {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return nil, err
		}
		var index uint32
		var name string
		for ad.Next() {
			switch ad.Type() {
			case attrDevIndex:
				index = ad.Uint32()
			case attrDevName:
				name = ad.String()
			}
		}
		if err := ad.Err(); err != nil {
			return nil, err
		}
		devices[index] = name
	}
	return devices, nil
}

// Resources lists what the processes of this machine hold. Objects of the
// kernel itself are left out, and kinds that this kernel does not track.
func Resources() ([]Resource, error) {
	devices, err := rdmaDevices()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // the kernel has no RDMA at all
	}
	if err != nil {
		return nil, err
	}
	var out []Resource
	for index, name := range devices {
		ae := netlink.NewAttributeEncoder()
		ae.Uint32(attrDevIndex, index)
		b, err := ae.Encode()
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			msgs, err := nldev(k.cmd, netlink.Dump, b)
			if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
				continue
			}
			if err != nil {
				return nil, wrap(err, "list %s of %s", k.name, name)
			}
			for _, m := range msgs {
				pids, err := holders(m.Data, k.table)
				if err != nil {
					return nil, err
				}
				for _, pid := range pids {
					out = append(out, Resource{Device: name, Kind: k.name, PID: pid})
				}
			}
		}
	}
	return out, nil
}

// holders finds the processes in a table of resources.
func holders(b []byte, table uint16) (pids []int, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		if ad.Type() != table {
			continue
		}
		ad.Nested(func(entries *netlink.AttributeDecoder) error {
			for entries.Next() {
				entries.Nested(func(e *netlink.AttributeDecoder) error {
					pid, kernels := 0, false
					for e.Next() {
						switch e.Type() {
						case attrResPID:
							pid = int(e.Uint32())
						case attrKernName:
							kernels = true
						}
					}
					if !kernels {
						pids = append(pids, pid)
					}
					return nil
				})
			}
			return nil
		})
	}
	return pids, ad.Err()
}
