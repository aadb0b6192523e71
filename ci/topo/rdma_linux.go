package topo

import (
	"fmt"

	"github.com/mdlayher/netlink"

	"github.com/goverbs/goverbs/internal/nldev"
)

// AddRXE makes a Soft-RoCE device on a network interface.
func AddRXE(name, netdev string) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(nldev.AttrDevName, name)
	ae.String(nldev.AttrLinkType, "rxe")
	ae.String(nldev.AttrNetdevName, netdev)
	b, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = nldev.Request(nldev.CmdNewLink, netlink.Acknowledge, b)
	return wrap(err, "make %s on %s", name, netdev)
}

// DelRDMA removes an RDMA device that was made with AddRXE.
func DelRDMA(name string) error {
	index, err := deviceIndex(name)
	if err != nil {
		return err
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(nldev.AttrDevIndex, index)
	b, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = nldev.Request(nldev.CmdDelLink, netlink.Acknowledge, b)
	return wrap(err, "remove %s", name)
}

func deviceIndex(name string) (uint32, error) {
	devices, err := nldev.Devices()
	if err != nil {
		return 0, wrap(err, "list RDMA devices")
	}
	for _, d := range devices {
		if d.Name == name {
			return d.Index, nil
		}
	}
	return 0, fmt.Errorf("no RDMA device %s", name)
}
